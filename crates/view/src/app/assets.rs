//! The files that the pages of the application load: one stylesheet, one picture, and scripts.

use crate::page::{COPY_JS, STYLE};
use crate::run::picture::GRAPH_STYLE;
use crate::svg::TEAM_STYLE;
use crate::worth::WORTH_STYLE;
use std::borrow::Cow;

/// A file that pages load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asset {
    pub media_type: &'static str,
    /// What is in it.
    pub content: Cow<'static, str>,
}

/// The file of this name below `/app/`, if there is one.
pub fn asset(name: &str) -> Option<Asset> {
    let content: Cow<'static, str> = match name {
        "app.css" => {
            let style = include_str!("app.css");
            Cow::Owned([STYLE, TEAM_STYLE, GRAPH_STYLE, WORTH_STYLE, style].join("\n"))
        }
        "icon.svg" => Cow::Borrowed(include_str!("icon.svg")),
        "base.js" => Cow::Borrowed(include_str!("base.js")),
        "approve.js" => Cow::Borrowed(include_str!("approve.js")),
        "ask.js" => Cow::Borrowed(include_str!("ask.js")),
        "turn.js" => Cow::Borrowed(include_str!("turn.js")),
        "runs.js" => Cow::Borrowed(include_str!("runs.js")),
        "team.js" => Cow::Borrowed(include_str!("team.js")),
        "training.js" => Cow::Borrowed(include_str!("training.js")),
        "live-run.js" => Cow::Borrowed(include_str!("live-run.js")),
        // The scripts of exported pages, as they are.
        "run.js" => Cow::Owned(["import \"./live-run.js\";\n", include_str!("../run/page.js"), COPY_JS].concat()),
        "evaluation.js" => {
            let page = include_str!("../evaluation/page.js");
            Cow::Owned(["import \"./base.js\";\n", page, COPY_JS].concat())
        }
        "copy.js" => Cow::Borrowed(COPY_JS),
        _ => return None,
    };
    let media_type = match name.rsplit_once('.') {
        Some((_, "css")) => "text/css; charset=utf-8",
        Some((_, "svg")) => "image/svg+xml",
        _ => "text/javascript; charset=utf-8",
    };
    Some(Asset { media_type, content })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_a_script_imports_is_there() {
        for name in ["base.js", "ask.js", "turn.js", "runs.js", "team.js", "training.js", "run.js", "evaluation.js"] {
            let script = asset(name).unwrap().content;
            for line in script.lines().filter(|line| line.starts_with("import ")) {
                let imported = line.split('"').nth(1).unwrap().trim_start_matches("./");
                assert!(asset(imported).is_some(), "{name} imports {imported}");
            }
        }
        assert_eq!(asset("../app.css"), None);
    }

    /// The policy of the application forbids them, so that one would silently do nothing.
    #[test]
    fn no_script_writes_markup_or_evaluates_text() {
        for name in ["approve.js", "ask.js", "turn.js", "runs.js", "team.js", "training.js", "run.js", "evaluation.js"]
        {
            let script = asset(name).unwrap().content;
            for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"] {
                assert!(!script.contains(word), "{name}: {word}");
            }
        }
    }
}
