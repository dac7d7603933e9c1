//! The files of the dashboard: where they are, and how they are served.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use stepwell_protocol::dashboard::{PAGE, POLICY, ROOT, Target, content_type};

use super::http::Answer;
use crate::{
    failure::{Failure, Result},
    project::Project,
    tools, trust,
};

/// What to do where they are missing.
const GET_IT: &str = "Run `npm install --save-dev @stepwell/dashboard` in this folder, or name the folder with its \
                      files: --assets FOLDER.";

/// What to do where the page is of another version than its files.
const OUTDATED: &str = "There is no such file. The dashboard may have been updated: reload the page.\n";

/// The folder with the files: the named one, or else that of the project around this folder, as `dev` serves it, or of
/// the npm package.
pub fn find(named: Option<&Path>) -> Result<PathBuf> {
    if let Some(named) = named {
        let what = format!("{} has no dashboard: there is no dash/{PAGE} in it", named.display());
        return tools::with_dashboard(named).ok_or_else(|| Failure::usage(what).next(GET_IT));
    }
    let found = around(&env::current_dir().unwrap_or_default());
    found.ok_or_else(|| Failure::local("the files of the dashboard are not installed").next(GET_IT))
}

fn around(here: &Path) -> Option<PathBuf> {
    // What other people have put into a folder above, such as `/tmp`, says nothing here.
    let is_trusted = |root: &&Path| {
        root.join("wrangler.toml").canonicalize().is_ok_and(|config| trust::is_trusted(&config, here))
    };
    let root = Project::root_of(here).filter(is_trusted);
    let found = match root.map(Project::at) {
        Some(Ok(project)) => tools::dashboard(&project.front),
        // Files can be served without a project, or beside one that cannot be built.
        Some(Err(_)) | None => tools::dashboard_package(here),
    };
    found.filter(|folder| tools::is_trusted_dashboard(folder, here))
}

/// A file of this folder.
pub fn answer(folder: &Path, target: Target<'_>) -> Answer {
    let file = match target {
        Target::Elsewhere => return Answer::text(308, "").with("location", ROOT),
        Target::Nothing => return Answer::text(404, "There is no such file.\n"),
        Target::Page => PAGE,
        Target::File(file) => file,
    };
    let Ok(bytes) = fs::read(folder.join("dash").join(file)) else { return Answer::text(404, OUTDATED) };
    let answer = Answer::new(200, content_type(file), bytes);
    if target == Target::Page {
        return answer.with("content-security-policy", POLICY).with("referrer-policy", "no-referrer");
    }
    answer.with("cache-control", "private, max-age=31536000, immutable")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only root can make files of other people; nobody else sees this fail.
    #[cfg(unix)]
    #[test]
    fn what_other_people_have_put_into_a_folder_above_is_not_served() {
        use std::os::unix::fs::PermissionsExt as _;
        let root = tempfile::tempdir().expect("a folder");
        let (here, page) = (root.path().join("below"), root.path().join("public/dash/page.htm"));
        for folder in [&here, &root.path().join("public/dash")] {
            fs::create_dir_all(folder).expect("made");
        }
        fs::write(root.path().join("Cargo.toml"), "").expect("written");
        let config = root.path().join("wrangler.toml");
        let assets = "[assets]\ndirectory = \"public\"\nbinding = \"ASSETS\"\n";
        let worker = format!("name = \"x\"\nmain = \"x.js\"\ncompatibility_date = \"2026-04-01\"\n{assets}");
        fs::write(&config, worker).expect("written");
        fs::write(&page, "<p>").expect("written");
        assert!(around(&here).is_some(), "its owner is the same");
        let dash = root.path().join("public/dash");
        for file in [&config, &page, &dash] {
            if std::os::unix::fs::chown(file, Some(4_711), None).is_ok() {
                assert_eq!(around(&here), None, "{} is somebody else's", file.display());
                std::os::unix::fs::chown(file, Some(0), None).expect("it was possible before");
            }
        }
        // Whoever may write there can put scripts beside a page that is not theirs.
        let assets = dash.join("assets");
        fs::create_dir(&assets).expect("made");
        assert!(around(&here).is_some());
        let open_to_all = |mode| fs::set_permissions(&assets, fs::Permissions::from_mode(mode));
        open_to_all(0o777).expect("it is ours");
        assert_eq!(around(&here), None, "everybody may write there");
        open_to_all(0o755).expect("it is ours");
        let elsewhere = root.path().join("elsewhere.htm");
        fs::rename(&page, &elsewhere).expect("moved");
        std::os::unix::fs::symlink(&elsewhere, &page).expect("linked");
        assert_eq!(around(&here), None, "what a link leads to may be another one by then");
    }

    #[test]
    fn a_folder_without_the_page_is_no_dashboard() {
        let folder = tempfile::tempdir().expect("a folder");
        let failure = find(Some(folder.path())).expect_err("nothing is there");
        assert!(failure.what.contains("dash/page.htm"), "{}", failure.what);
        fs::create_dir(folder.path().join("dash")).expect("made");
        fs::write(folder.path().join("dash/page.htm"), "<p>").expect("written");
        let found = find(Some(folder.path())).expect("the page is there");
        let page = answer(&found, Target::Page);
        assert_eq!((page.status, page.header("content-security-policy")), (200, Some(POLICY)));
        assert_eq!(answer(&found, Target::File("assets/gone.js")).status, 404);
    }
}
