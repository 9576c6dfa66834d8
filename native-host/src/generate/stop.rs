//! Texts that end an answer.

use crate::{Error, Result};

/// Finds stop texts in a stream of pieces; they may lie across several.
#[derive(Debug, Default)]
pub struct StopTexts {
    stops: Vec<String>,
    /// The end of the stream that may be the beginning of a stop text.
    held: String,
}

impl StopTexts {
    /// # Errors
    /// `Input` for an empty text, which would stop everything at once.
    pub fn new(stops: &[String]) -> Result<Self> {
        if stops.iter().any(String::is_empty) {
            return Err(Error::Input("a stop text is empty".into()));
        }
        Ok(StopTexts { stops: stops.to_vec(), held: String::new() })
    }

    /// Takes a piece; returns what can be given out, and whether a stop text was found. What comes after one is
    /// dropped.
    pub fn push(&mut self, piece: &str) -> (String, bool) {
        self.held.push_str(piece);
        let first = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min();
        if let Some(at) = first {
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), true);
        }
        let kept = self.stops.iter().map(|stop| overlap(&self.held, stop)).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - kept);
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// What was held back, when nothing more comes.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// Bytes at the end of `text` that a `stop` begins with.
fn overlap(text: &str, stop: &str) -> usize {
    let longest = text.len().min(stop.len().saturating_sub(1));
    (1..=longest)
        .rev()
        .find(|n| stop.is_char_boundary(*n) && text.as_bytes().ends_with(&stop.as_bytes()[..*n]))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(stops: &[&str], pieces: &[&str]) -> (Vec<String>, bool) {
        let stops: Vec<String> = stops.iter().map(|s| (*s).to_owned()).collect();
        let mut texts = StopTexts::new(&stops).unwrap();
        let mut out = Vec::new();
        for piece in pieces {
            let (text, stopped) = texts.push(piece);
            out.push(text);
            if stopped {
                return (out, true);
            }
        }
        out.push(texts.finish());
        (out, false)
    }

    #[test]
    fn stops_lie_across_pieces() {
        assert_eq!(run(&["\n\n"], &["a\n", "\nb"]), (vec!["a".into(), String::new()], true));
        assert_eq!(run(&["END"], &["xE", "N", "Dy"]).0.concat(), "x");
        assert_eq!(
            run(&["END"], &["xE", "N", "Ey"]),
            (vec!["x".into(), "".into(), "ENEy".into(), "".into()], false)
        );
    }

    #[test]
    fn the_first_of_several_counts_and_characters_stay_whole() {
        assert_eq!(run(&["bc", "b"], &["abc"]), (vec!["a".into()], true));
        assert_eq!(run(&["éa"], &["xé", "b"]).0, ["x", "éb", ""]);
        assert_eq!(run(&["aab"], &["aa", "ab"]), (vec!["".into(), "a".into()], true));
        assert!(StopTexts::new(&[String::new()]).is_err());
    }

    #[test]
    fn without_stops_everything_passes() {
        assert_eq!(run(&[], &["a", "b"]), (vec!["a".into(), "b".into(), "".into()], false));
    }
}
