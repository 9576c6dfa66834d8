//! Requests to a hub: redirects followed by hand, so that the token never goes to another host and the headers
//! that describe a file are read where the hub sends them.

use std::time::Duration;

use ureq::{
    Agent, Body,
    http::{HeaderMap, Response, StatusCode, Uri},
    tls::{RootCerts, TlsConfig},
};

use crate::{Error, Result};

const MAX_REDIRECTS: usize = 10;

/// What a hub says about a file before it is fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileInfo {
    /// The commit that the revision is at, if the server says so.
    pub commit: Option<String>,
    /// Name for the blob: the SHA-256 of a large file, the git id of a small one.
    pub etag: Option<String>,
    pub size: Option<u64>,
}

/// The answer to "is there such a file?".
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    Found(FileInfo),
    Missing { commit: Option<String> },
}

pub(super) struct Client {
    agent: Agent,
    endpoint: Uri,
    token: Option<String>,
    pub retry_delay: Duration,
}

impl Client {
    pub fn new(endpoint: &str, token: Option<&str>, retry_delay: Duration) -> Result<Self> {
        let uri: Uri = endpoint.parse().map_err(|e| bad_endpoint(endpoint, &format!("{e}")))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.authority().is_none() {
            return Err(bad_endpoint(endpoint, "it must be an http or https address"));
        }
        let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
        let config = Agent::config_builder()
            .user_agent(concat!("inferencelayer/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity")
            .tls_config(tls)
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(Duration::from_secs(20)))
            .timeout_per_read(Some(Duration::from_secs(60)))
            .build();
        Ok(Client { agent: config.new_agent(), endpoint: uri, token: token.map(str::to_owned), retry_delay })
    }

    /// Asks for a file's size and names without fetching it.
    ///
    /// # Errors
    /// `Fetch` for anything but "here it is" and "there is no such file".
    pub fn lookup(&self, url: &str) -> Result<Lookup> {
        let mut commit = None;
        let mut at = url.to_owned();
        for _ in 0..MAX_REDIRECTS {
            let response = self.request("HEAD", &at, 0)?;
            let headers = response.headers();
            commit = commit.or_else(|| text(headers, "x-repo-commit"));
            let status = response.status();
            // A hub answers for a large file with a redirect that already carries the description.
            if let Some(etag) = text(headers, "x-linked-etag") {
                let size = number(headers, "x-linked-size");
                return Ok(Lookup::Found(FileInfo { commit, etag: clean_etag(&etag), size }));
            }
            if let Some(next) = redirect(&at, &response)? {
                at = next;
                continue;
            }
            if status == StatusCode::NOT_FOUND
                && text(headers, "x-error-code").is_none_or(|c| c == "EntryNotFound")
            {
                return Ok(Lookup::Missing { commit });
            }
            if !status.is_success() {
                return Err(self.refused(url, &response));
            }
            let etag = text(headers, "etag").and_then(|e| clean_etag(&e));
            return Ok(Lookup::Found(FileInfo { commit, etag, size: number(headers, "content-length") }));
        }
        Err(Error::Fetch(format!("{url}: more than {MAX_REDIRECTS} redirects")))
    }

    /// Begins to fetch a file from byte `from` on. The caller looks at the status: 200 is the whole file, 206 the
    /// rest, 416 says that there is no such rest.
    ///
    /// # Errors
    /// `Fetch` for every other status.
    pub fn get(&self, url: &str, from: u64) -> Result<Response<Body>> {
        let mut at = url.to_owned();
        for _ in 0..MAX_REDIRECTS {
            let response = self.request("GET", &at, from)?;
            if let Some(next) = redirect(&at, &response)? {
                at = next;
                continue;
            }
            return match response.status() {
                StatusCode::OK | StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => {
                    Ok(response)
                }
                _ => Err(self.refused(url, &response)),
            };
        }
        Err(Error::Fetch(format!("{url}: more than {MAX_REDIRECTS} redirects")))
    }

    fn request(&self, method: &str, url: &str, from: u64) -> Result<Response<Body>> {
        let uri: Uri = url.parse().map_err(|e| Error::Fetch(format!("{url}: {e}")))?;
        let mut request = if method == "HEAD" { self.agent.head(url) } else { self.agent.get(url) };
        let own = uri.scheme() == self.endpoint.scheme() && uri.authority() == self.endpoint.authority();
        if let (true, Some(token)) = (own, &self.token) {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        if from > 0 {
            request = request.header("Range", format!("bytes={from}-"));
        }
        request.call().map_err(|e| Error::Fetch(format!("{url}: {e}")))
    }

    fn refused(&self, url: &str, response: &Response<Body>) -> Error {
        let status = response.status();
        let hint = match (status.as_u16(), &self.token) {
            (401 | 403, None) => {
                ": the repository does not exist, or is private or gated; set HF_TOKEN to a token that may read it \
                 (a gated one also wants its terms accepted on its page)"
            }
            (401 | 403, Some(_)) => {
                ": HF_TOKEN was sent and refused; check that it is valid, may read this repository, and that the \
                 repository exists and its terms are accepted"
            }
            (404, _) => ": no such repository or revision",
            (429, _) => ": too many requests; try again later",
            (500.., _) => ": the server has a problem; try again later",
            _ => "",
        };
        Error::Fetch(format!("{url}: HTTP status {status}{hint}"))
    }
}

fn bad_endpoint(endpoint: &str, why: &str) -> Error {
    Error::Fetch(format!("HF_ENDPOINT `{endpoint}`: {why}"))
}

pub(super) fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.trim().to_owned())
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    text(headers, name)?.parse().ok()
}

/// `W/"abc"` → `abc`, if that can be a file name.
fn clean_etag(etag: &str) -> Option<String> {
    let etag = etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"');
    super::cache::is_safe_name(etag).then(|| etag.to_owned())
}

/// Where a redirect leads, absolute; `None` if the response is none.
fn redirect(url: &str, response: &Response<Body>) -> Result<Option<String>> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let Some(location) = text(response.headers(), "location") else {
        return Err(Error::Fetch(format!("{url}: a redirect without a location")));
    };
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let next = if location.contains("://") {
        location
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        format!("{scheme}://{host}{location}")
    } else {
        let path = rest.split(['?', '#']).next().unwrap_or_default();
        let folder = path.rsplit_once('/').map_or(path, |(folder, _)| folder);
        format!("{scheme}://{folder}/{location}")
    };
    if scheme == "https" && !next.starts_with("https://") {
        return Err(Error::Fetch(format!("{url}: a redirect from https to {next}, which is not secure")));
    }
    Ok(Some(next))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(from: &str, location: &str) -> Result<Option<String>> {
        let response = Response::builder().status(302).header("location", location);
        redirect(from, &response.body(Body::builder().data("")).unwrap())
    }

    #[test]
    fn redirects() {
        let url = "http://h:1/a/b?q";
        assert_eq!(moved(url, "http://x/y").unwrap().as_deref(), Some("http://x/y"));
        assert_eq!(moved(url, "/y?z").unwrap().as_deref(), Some("http://h:1/y?z"));
        assert_eq!(moved(url, "c").unwrap().as_deref(), Some("http://h:1/a/c"));
        assert_eq!(moved(url, "//x/y").unwrap().as_deref(), Some("http://x/y"));
        assert!(moved("https://h/a", "http://h/a").unwrap_err().to_string().contains("not secure"));
    }

    #[test]
    fn etags() {
        assert_eq!(clean_etag("W/\"abc\"").as_deref(), Some("abc"));
        assert_eq!(clean_etag("\"../../x\""), None);
        assert_eq!(clean_etag("\"\""), None);
    }

    #[test]
    fn endpoints() {
        for bad in ["", "mirror", "ftp://x", "http:///"] {
            let error = Client::new(bad, None, Duration::ZERO).map(|_| ()).unwrap_err().to_string();
            assert!(error.starts_with("HF_ENDPOINT"), "{error}");
        }
    }
}
