//! Links lead somewhere, code blocks can be read, and the site has every page. Nothing here asks the network.

use std::{collections::BTreeMap, fs};

use stepwell_house::{Page, anchor, pages, root};

#[test]
fn every_relative_link_leads_to_a_file_and_a_heading() {
    let pages = pages();
    let by_path: BTreeMap<_, _> = pages.iter().map(|page| (page.path.clone(), page)).collect();
    let (mut checked, mut broken) = (0, Vec::new());
    for page in &pages {
        for (line, link) in page.links() {
            // The site has nothing outside of docs, so pages there name such files by their address.
            let link = match own_file(&link) {
                Some(path) => format!("/{path}"),
                None if link.contains("://") => continue,
                None => link,
            };
            checked += 1;
            if let Err(reason) = follow(page, &link, &by_path) {
                broken.push(format!("{}:{line}: {link}: {reason}", page.path));
            }
        }
    }
    assert!(checked > 300, "only {checked} links were found");
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

fn follow(page: &Page, link: &str, pages: &BTreeMap<String, &Page>) -> Result<(), String> {
    let (path, fragment) = link.split_once('#').unwrap_or((link, ""));
    let folder = page.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let target = match path.strip_prefix('/') {
        Some(path) => path.to_owned(),
        None if path.is_empty() => page.path.clone(),
        None => resolve(folder, path)?,
    };
    if page.path.starts_with("docs/") && !path.starts_with('/') && !target.starts_with("docs/") {
        return Err("the site has no such page: link to the file on GitHub".into());
    }
    let is_summary = page.path == "docs/SUMMARY.md";
    if page.path.starts_with("docs/") && !is_summary && !path.starts_with('/') && path.ends_with("README.md")
    {
        return Err("the site has it as index.html: link to its folder".into());
    }
    if !root().join(&target).exists() {
        return Err("there is no such file".into());
    }
    if fragment.is_empty() {
        return Ok(());
    }
    let target = pages.get(&target).ok_or("it is no page, so it has no headings")?;
    let known = target.anchors();
    if known.iter().any(|anchor| anchor == fragment) {
        Ok(())
    } else {
        Err("there is no such heading".into())
    }
}

/// The path of a file of the repository that a link names by its address.
fn own_file(link: &str) -> Option<&str> {
    let path = link.strip_prefix("https://github.com/stepwell/stepwell/")?;
    path.strip_prefix("blob/main/").or_else(|| path.strip_prefix("tree/main/"))
}

fn resolve(folder: &str, path: &str) -> Result<String, String> {
    let mut parts: Vec<_> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop().ok_or("it leads out of the repository")?),
            name => parts.push(name),
        }
    }
    Ok(parts.join("/"))
}

#[test]
fn anchors_are_made_as_github_makes_them() {
    assert_eq!(anchor("Rotate the deployment's own key"), "rotate-the-deployments-own-key");
    assert_eq!(anchor("`POST /api/sync`"), "post-apisync");
    assert_eq!(resolve("docs/errors", "../api.md"), Ok("docs/api.md".into()));
    let page = Page { path: "docs/x.md".into(), text: "# A b\n[c](#d) `[e](f)`\n".into() };
    let pages = BTreeMap::from([("docs/x.md".to_owned(), &page)]);
    assert_eq!(page.links(), [(2, "#d".to_owned())]);
    assert!(follow(&page, "#d", &pages).is_err() && follow(&page, "nowhere.md", &pages).is_err());
}

#[test]
fn every_json_block_is_json() {
    let mut checked = 0;
    for page in pages() {
        for block in page.blocks().into_iter().filter(|block| block.language == "json") {
            for value in serde_json::Deserializer::from_str(&block.text).into_iter::<serde_json::Value>() {
                value.unwrap_or_else(|error| panic!("{}:{}: {error}", page.path, block.line));
                checked += 1;
            }
        }
    }
    assert!(checked > 8, "only {checked} values were found");
}

#[test]
fn every_block_has_a_language() {
    const KNOWN: &[&str] = &[
        "rust",
        "rust,ignore",
        "rust,no_run",
        "rust,should_panic",
        "sh",
        "bash",
        "text",
        "json",
        "toml",
        "js",
        "sql",
        "yaml",
    ];
    for page in pages() {
        for block in page.blocks() {
            let language = block.language.as_str();
            assert!(KNOWN.contains(&language), "{}:{}: a block of '{language}'", page.path, block.line);
        }
    }
}

/// Pages whose Rust blocks are compiled: where they are included as doc tests.
const COMPILED_IN: &[&str] = &["crates/stepwell/src/lib.rs", "crates/stepwell/src/testing/mod.rs"];

/// Pages whose Rust blocks are compared with sources that are compiled, or that have none to compile.
const COMPARED: &[&str] = &["README.md", "docs/new-object.md", "docs/manifest.md"];

#[test]
fn every_page_with_rust_is_compiled_or_compared() {
    let sources: String =
        COMPILED_IN.iter().map(|path| fs::read_to_string(root().join(path)).expect("it is there")).collect();
    for page in pages() {
        let has_rust = page.blocks().iter().any(|block| block.language.starts_with("rust"));
        let is_compiled = sources.contains(&format!("/{}\")]", page.path));
        assert!(
            !has_rust || is_compiled || COMPARED.contains(&page.path.as_str()),
            "{} is not compiled",
            page.path
        );
    }
}

#[test]
fn the_code_of_the_readme_is_the_code_that_is_tested() {
    let readme = pages().into_iter().find(|page| page.path == "README.md").expect("there is a README");
    let tested = fs::read_to_string(root().join("crates/stepwell/tests/readme.rs")).expect("it is there");
    let blocks: Vec<_> = readme.blocks().into_iter().filter(|block| block.language == "rust").collect();
    assert!(blocks.len() >= 3, "the README has lost its code");
    for block in blocks {
        let code: Vec<_> = block.text.lines().filter(|line| !line.starts_with("use ")).collect();
        let code = code.join("\n");
        assert!(tested.contains(code.trim()), "crates/stepwell/tests/readme.rs does not have:\n{code}");
    }
}

#[test]
fn the_readme_is_short() {
    let readme = fs::read_to_string(root().join("README.md")).expect("there is a README");
    assert!(readme.lines().count() <= 250, "move reference into docs");
}

#[test]
fn the_site_has_every_page() {
    let pages = pages();
    let summary = pages.iter().find(|page| page.path == "docs/SUMMARY.md").expect("there is a summary");
    let listed: Vec<_> = summary.links().into_iter().map(|(_, link)| format!("docs/{link}")).collect();
    for page in pages.iter().filter(|page| page.path.starts_with("docs/") && page.path != summary.path) {
        assert!(listed.contains(&page.path), "docs/SUMMARY.md does not have {}", page.path);
    }
    let errors =
        pages.iter().find(|page| page.path == "docs/errors/README.md").expect("errors have an index");
    for page in pages.iter().filter(|page| page.path.starts_with("docs/errors/") && page.path != errors.path)
    {
        let name = page.path.rsplit('/').next().expect("a path has a name");
        assert!(
            errors.links().iter().any(|(_, link)| link == name),
            "docs/errors/README.md does not have {name}"
        );
    }
}

#[test]
fn pictures_are_for_light_and_dark_and_say_what_they_show() {
    let folder = root().join("docs/images");
    for entry in fs::read_dir(folder).expect("there are pictures") {
        let path = entry.expect("the entry can be read").path();
        let name = path.to_string_lossy().into_owned();
        // A screenshot has a twin; a drawing has both in one.
        if let Some(shot) = name.strip_suffix(".png") {
            let light = shot.strip_suffix("-dark").unwrap_or(shot);
            for twin in [format!("{light}.png"), format!("{light}-dark.png")] {
                assert!(fs::exists(&twin).is_ok_and(|there| there), "{twin} is missing");
            }
            continue;
        }
        let text = fs::read_to_string(&path).expect("a picture is text");
        for part in ["prefers-color-scheme: dark", "<title", "<desc", "viewBox"] {
            assert!(text.contains(part), "{} has no {part}", path.display());
        }
    }
}
