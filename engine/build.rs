//! Validates every permutation of every kernel with naga, and writes the tables of kernels and of what they import that
//! `gpu/kernel.rs` includes.

extern crate alloc;

use std::{
    collections::BTreeSet,
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    thread,
};

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
    let library: Vec<(String, String)> =
        (files(&shaders.join("lib")).iter()).map(|path| (name(path), template::strip(&text(path)))).collect();
    let library: Vec<_> = library.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let kernels: Vec<Kernel> = files(&shaders).iter().map(|path| read(path)).collect();
    if env::var_os("CARGO_FEATURE_GPU").is_some() {
        let errors: Vec<String> = thread::scope(|scope| {
            let threads: Vec<_> = kernels.iter().map(|k| scope.spawn(|| validate(k, &library))).collect();
            threads.into_iter().flat_map(|t| t.join().expect("validation does not panic")).collect()
        });
        assert!(errors.is_empty(), "{}", errors.join("\n"));
    }
    let mut table =
        format!("/// `shaders/lib`: names and texts.\npub const LIBRARY: &[(&str, &str)] = &{library:?};\n");
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

/// The WGSL files of a folder, in order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<_> = entries.flatten().map(|e| e.path()).collect();
    files.retain(|p| p.extension().is_some_and(|e| e == "wgsl"));
    files.sort();
    files
}

fn name(path: &Path) -> String {
    path.file_stem().expect("a file").to_string_lossy().into_owned()
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn read(path: &Path) -> Kernel {
    let text = text(path);
    let header = |word: &str| -> Vec<Vec<String>> {
        let lines = text.lines().filter_map(|l| l.strip_prefix(&format!("//! {word} ")));
        lines.map(|l| l.split_whitespace().map(String::from).collect()).collect()
    };
    let permute = header("permute").into_iter().map(|mut words| (words.remove(0), words)).collect();
    Kernel { name: name(path), needs: header("needs").concat(), permute, text: template::strip(&text) }
}

/// Kernels with more permutations than this are validated with a choice of them that has every pair of words.
const ALL_PERMUTATIONS: usize = 256;

fn validate(kernel: &Kernel, library: &[(&str, &str)]) -> Vec<String> {
    let mut errors = Vec::new();
    for choice in choices(&kernel.permute.iter().map(|(_, words)| words.len()).collect::<Vec<_>>()) {
        let definitions: Vec<_> = (kernel.permute.iter().zip(&choice))
            .map(|((key, words), word)| (key.as_str(), words[*word].as_str()))
            .collect();
        if let Err(error) = validate_one(kernel, library, &definitions) {
            errors.push(format!("shaders/{}.wgsl with {definitions:?}:\n{error}", kernel.name));
        }
    }
    errors
}

/// Which word each key takes, for every permutation to be validated.
fn choices(words: &[usize]) -> Vec<Vec<usize>> {
    let total: usize = words.iter().product();
    let mut all = (0..total).map(|mut index| {
        let digit = |n: &usize| {
            let digit = index % n;
            index /= n;
            digit
        };
        words.iter().map(digit).collect::<Vec<_>>()
    });
    if total <= ALL_PERMUTATIONS {
        return all.collect();
    }
    let mut uncovered: BTreeSet<(usize, usize, usize, usize)> = BTreeSet::new();
    for (a, b) in (0..words.len()).flat_map(|a| (0..a).map(move |b| (a, b))) {
        uncovered.extend((0..words[a]).flat_map(|u| (0..words[b]).map(move |v| (a, u, b, v))));
    }
    let mut chosen = Vec::new();
    let mut turn = 0;
    while let Some(&(a, u, b, v)) = uncovered.first() {
        // Other keys go through their words in turn.
        let mut choice: Vec<usize> =
            words.iter().enumerate().map(|(i, n)| (turn / (i + 1) + i) % n).collect();
        (choice[a], choice[b]) = (u, v);
        uncovered.retain(|&(a, u, b, v)| choice[a] != u || choice[b] != v);
        chosen.push(choice);
        turn += 1;
    }
    // The first permutation is the plainest; it helps to see it fail.
    chosen.extend(all.next());
    chosen
}

fn validate_one(
    kernel: &Kernel,
    library: &[(&str, &str)],
    definitions: &[template::Definition<'_>],
) -> Result<(), String> {
    let expanded = template::expand(&kernel.text, library, definitions)?;
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
        .subgroup_stages(naga::valid::ShaderStages::COMPUTE)
        .subgroup_operations(naga::valid::SubgroupOperationSet::all())
        .validate(&module)
        .map_err(|e| e.emit_to_string(&wgsl))?;
    Ok(())
}
