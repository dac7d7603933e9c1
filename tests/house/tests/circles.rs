//! The engine's modules import each other in one direction: whoever reads one of them needs those below it, and no
//! others.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Which module imports which, and a file in which it does.
type Graph = BTreeMap<String, BTreeMap<String, String>>;

#[test]
fn no_module_of_the_engine_imports_itself_by_way_of_others() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/engine/src"));
    let sources = sources(root);
    for inside in [&[][..], &["http"]] {
        let graph = graph(&sources, inside);
        let imports: usize = graph.values().map(BTreeMap::len).sum();
        assert!(graph.len() > 5 && imports > 10, "the modules were not found: {graph:?}");
        if let Some(circle) = circle(&graph) {
            panic!("modules of the engine form a circle:\n{circle}");
        }
    }
}

#[test]
fn a_circle_is_found_however_it_is_written() {
    let whole = "use crate::{\n    // a word\n    guard as g,\n    cell::{Call, store::{self, Row}},\n};";
    let cases = [
        ("http/mod.rs", "use crate::cell::Call;"),
        ("http/mod.rs", whole),
        ("http/runs.rs", "fn f() { crate::cell::g::<u8>() }"),
        ("http/runs.rs", "use super::super::{guard::*, cell::Call};"),
        ("http/runs.rs", "use super::{list, super::cell::Call};"),
        ("http/front/mod.rs", "use super::super::cell;"),
        ("http/front/app.rs", "pub use super::super::super::cell as c;"),
        ("http.rs", "use super::cell;"),
    ];
    for (path, text) in cases {
        let files = [(path, text), ("cell.rs", "use crate::rpc;"), ("rpc.rs", "use crate::http;")];
        let found = circle(&graph(&files.map(|(path, text)| (path.into(), text.to_owned())), &[]));
        let found = found.unwrap_or_else(|| panic!("{path}: {text}"));
        assert!(found.contains(&format!("http imports cell, in {path}")), "{found}");
    }
    for (path, text) in [
        ("http/mod.rs", "// use crate::cell::Call;"),
        ("http/mod.rs", "use crate::{guard, runtime::cell};"),
        ("http/mod.rs", "use crate::cells;"),
        ("http/runs.rs", "use super::cell;"),
        ("http/runs.rs", "pub(in crate::http) fn f() {}"),
        ("http.rs", "#[cfg(test)]\nmod tests {\n    use super::cell;\n}"),
    ] {
        let files = [(path, text), ("cell.rs", "use crate::http;"), ("cells.rs", "")];
        let found = circle(&graph(&files.map(|(path, text)| (path.into(), text.to_owned())), &[]));
        assert_eq!(found, None, "{path}: {text}");
    }
}

#[test]
fn a_circle_is_found_inside_a_module() {
    for text in ["use super::super::cors;", "use crate::{calls, http::cors::Cors};"] {
        let files =
            [("http/front/app.rs", text), ("http/cors.rs", "use super::front;"), ("http/mod.rs", text)];
        let files = files.map(|(path, text)| (path.into(), text.to_owned()));
        let found = circle(&graph(&files, &["http"])).unwrap_or_else(|| panic!("{text}"));
        assert!(found.contains("front imports cors, in http/front/app.rs"), "{found}");
        assert_eq!(circle(&graph(&files, &[])), None);
    }
}

/// All files below a folder: their paths from there on, and their texts.
fn sources(root: &Path) -> Vec<(PathBuf, String)> {
    let (mut found, mut folders) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the folder can be read") {
            let path = entry.expect("the entry can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("sources are text");
                found.push((path.strip_prefix(root).expect("it is below the root").to_owned(), text));
            }
        }
    }
    found
}

/// Which of the modules inside a module imports which others there. The file that joins them may name any.
fn graph(sources: &[(PathBuf, String)], inside: &[&str]) -> Graph {
    let below = |path: &[String]| {
        let is_below = path.iter().zip(inside).all(|(name, wanted)| name == wanted);
        path.get(inside.len()).filter(|_| is_below).cloned()
    };
    let mut graph = Graph::new();
    for (path, text) in sources.iter().filter(|(path, _)| path != Path::new("lib.rs")) {
        let module = module(path);
        let Some(name) = below(&module) else { continue };
        let imports = graph.entry(name.clone()).or_default();
        for imported in imports_of(&module, text).iter().filter_map(|path| below(path)) {
            if imported != name {
                imports.entry(imported).or_insert_with(|| path.display().to_string());
            }
        }
    }
    // Whatever else is named is no module of these.
    let all: BTreeSet<_> = graph.keys().cloned().collect();
    for imports in graph.values_mut() {
        imports.retain(|name, _| all.contains(name));
    }
    graph
}

/// The path of the module that a file holds.
fn module(path: &Path) -> Vec<String> {
    let path = path.with_extension("");
    let mut names: Vec<_> = path.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    names.pop_if(|name| name == "mod");
    names
}

/// The paths that a text names, from the root on.
fn imports_of(module: &[String], text: &str) -> Vec<Vec<String>> {
    // Tests may look at whatever they test with.
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let code: Vec<_> = text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let code = code.join("\n");
    let mut paths = Vec::new();
    for (at, _) in code.match_indices("crate::").chain(code.match_indices("super::")) {
        let before = code[..at].chars().next_back();
        if before.is_none_or(|c| !is_of_name(c) && c != ':') {
            read_tree(&code[at..], &mut Vec::new(), &mut paths);
        }
    }
    paths.into_iter().map(|path| from_root(module, path)).collect()
}

/// Reads a path, or several in braces, and gives what follows.
fn read_tree<'a>(code: &'a str, before: &mut Vec<String>, paths: &mut Vec<Vec<String>>) -> &'a str {
    let code = code.trim_start();
    if let Some(mut list) = code.strip_prefix('{') {
        loop {
            list = read_tree(list, &mut before.clone(), paths);
            // Past a star, or another name for it.
            let Some(at) = list.find([',', '}']) else { return "" };
            let is_last = list[at..].starts_with('}');
            list = &list[at + 1..];
            if is_last {
                return list;
            }
        }
    }
    let (name, rest) = code.split_at(code.find(|c| !is_of_name(c)).unwrap_or(code.len()));
    if !name.is_empty() {
        before.push(name.to_owned());
        if let Some(rest) = rest.strip_prefix("::") {
            return read_tree(rest, before, paths);
        }
    }
    paths.push(before.clone());
    rest
}

fn from_root(module: &[String], path: Vec<String>) -> Vec<String> {
    let mut whole = module.to_vec();
    for name in path {
        match name.as_str() {
            "crate" => whole.clear(),
            "super" => drop(whole.pop()),
            "self" => {}
            _ => whole.push(name),
        }
    }
    whole
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// A circle, an import in each line; none, if there is none.
fn circle(graph: &Graph) -> Option<String> {
    fn visit(graph: &Graph, name: &str, path: &mut Vec<String>, done: &mut BTreeSet<String>) -> bool {
        let is_known = path.iter().any(|before| before == name);
        path.push(name.to_owned());
        if is_known {
            return true;
        }
        if done.insert(name.to_owned()) && graph[name].keys().any(|next| visit(graph, next, path, done)) {
            return true;
        }
        path.pop();
        false
    }
    let (mut path, mut done) = (Vec::new(), BTreeSet::new());
    graph.keys().any(|name| visit(graph, name, &mut path, &mut done)).then(|| {
        let last = path.last().expect("a circle has a beginning");
        let begins = path.iter().position(|name| name == last).expect("it ends where it begins");
        let edges = path[begins..].windows(2).map(|edge| {
            let (from, to) = (&edge[0], &edge[1]);
            format!("{from} imports {to}, in {}", graph[from][to])
        });
        edges.collect::<Vec<_>>().join("\n")
    })
}
