//! Expands the shaders' imports, validates every permutation of every kernel with naga, and writes the table of
//! kernels that `gpu/kernel.rs` includes.

extern crate alloc;

use std::{collections::BTreeSet, env, fmt::Write as _, fs, path::Path, thread};

#[allow(dead_code)] // The engine uses the parts that this script does not.
#[path = "src/gpu/template.rs"]
mod template;

struct Kernel {
    name: String,
    text: String,
    needs: Vec<String>,
    /// Each key with the words it may take.
    permute: Vec<(String, Vec<String>)>,
}

fn main() {
    let shaders = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("set by cargo")).join("../shaders");
    println!("cargo::rerun-if-changed={}", shaders.display());
    println!("cargo::rerun-if-changed=src/gpu/template.rs");
    println!("cargo::rerun-if-changed=build.rs");
    let mut files: Vec<_> =
        fs::read_dir(&shaders).expect("shaders/ exists").flatten().map(|e| e.path()).collect();
    files.retain(|p| p.extension().is_some_and(|e| e == "wgsl"));
    files.sort();
    let kernels: Vec<Kernel> = files.iter().map(|path| read(&shaders, path)).collect();
    if env::var_os("CARGO_FEATURE_GPU").is_some() {
        let errors: Vec<String> = thread::scope(|scope| {
            let threads: Vec<_> = kernels.iter().map(|k| scope.spawn(|| validate(k))).collect();
            threads.into_iter().flat_map(|t| t.join().expect("validation does not panic")).collect()
        });
        assert!(errors.is_empty(), "{}", errors.join("\n"));
    }
    let mut table = String::new();
    for k in &kernels {
        writeln!(
            table,
            "/// `shaders/{0}.wgsl`\npub const {1}: Kernel = Kernel {{ name: {0:?}, text: {2:?}, needs: &{3:?} }};",
            k.name,
            k.name.to_uppercase(),
            k.text,
            k.needs
        )
        .expect("writing to a string");
    }
    let out = Path::new(&env::var("OUT_DIR").expect("set by cargo")).join("kernels.rs");
    fs::write(out, table).expect("OUT_DIR is writable");
}

fn read(shaders: &Path, path: &Path) -> Kernel {
    let name = path.file_stem().expect("a file").to_string_lossy().into_owned();
    let mut text = String::new();
    import(shaders, path, &mut BTreeSet::new(), &mut text);
    let header = |word: &str| -> Vec<Vec<String>> {
        let lines = text.lines().filter_map(|l| l.strip_prefix(&format!("//! {word} ")));
        lines.map(|l| l.split_whitespace().map(String::from).collect()).collect()
    };
    let permute = header("permute").into_iter().map(|mut words| (words.remove(0), words)).collect();
    let needs = header("needs").concat();
    Kernel { name, needs, permute, text }
}

fn import(shaders: &Path, path: &Path, seen: &mut BTreeSet<String>, out: &mut String) {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    for line in text.lines() {
        match line.strip_prefix("#import ") {
            Some(name) if seen.insert(name.into()) => {
                import(shaders, &shaders.join("lib").join(format!("{}.wgsl", name.trim())), seen, out);
            }
            Some(_) => {}
            None => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
}

fn validate(kernel: &Kernel) -> Vec<String> {
    let mut errors = Vec::new();
    let total: usize = kernel.permute.iter().map(|(_, words)| words.len()).product();
    for mut index in 0..total {
        let mut definitions = Vec::new();
        for (key, words) in &kernel.permute {
            definitions.push((key.as_str(), words[index % words.len()].as_str()));
            index /= words.len();
        }
        if let Err(error) = validate_one(kernel, &definitions) {
            errors.push(format!("shaders/{}.wgsl with {definitions:?}:\n{error}", kernel.name));
        }
    }
    errors
}

fn validate_one(kernel: &Kernel, definitions: &[template::Definition<'_>]) -> Result<(), String> {
    let expanded = template::expand(&kernel.text, definitions)?;
    let mut wgsl = String::new();
    for need in &kernel.needs {
        match need.as_str() {
            "f16" => wgsl.push_str("enable f16;\n"),
            "coop" => wgsl.push_str("enable wgpu_cooperative_matrix;\n"),
            "subgroups" => {}
            other => return Err(format!("unknown need {other}")),
        }
    }
    wgsl.push_str(&expanded.wgsl);
    let module = naga::front::wgsl::parse_str(&wgsl).map_err(|e| e.emit_to_string(&wgsl))?;
    naga::valid::Validator::new(naga::valid::ValidationFlags::all(), naga::valid::Capabilities::all())
        .validate(&module)
        .map_err(|e| e.emit_to_string(&wgsl))?;
    Ok(())
}
