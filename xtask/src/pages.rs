//! What every Markdown page keeps to: an empty line before each heading, and links to files that exist.

use std::path::Path;

/// Everything wrong with a page, whose path is relative to the root.
pub fn faults(root: &Path, file: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let (mut in_code, mut before) = (false, "");
    for (at, line) in text.lines().enumerate() {
        in_code ^= line.starts_with("```");
        if !in_code {
            let place = format!("{file}:{}", at + 1);
            if is_heading(line) && !before.is_empty() {
                faults.push(format!("{place}: no empty line before the heading"));
            }
            let folder = root.join(file).parent().unwrap_or(root).to_owned();
            let broken = links(line).filter(|link| !folder.join(link).exists());
            faults.extend(broken.map(|link| format!("{place}: there is no file {link}")));
        }
        before = line;
    }
    faults
}

fn is_heading(line: &str) -> bool {
    line.trim_start_matches('#').starts_with(' ') && line.starts_with('#')
}

/// The files that a line links to.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split([')', '#', ' ']).next());
    targets.filter(|target| !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        assert_eq!(faults(Path::new(env!("CARGO_MANIFEST_DIR")), "a.md", text), expected, "{text}");
    }

    #[test]
    fn headings_stand_apart() {
        check("# One\n\ntext\n\n## Two\n", &[]);
        check("# One\ntext\n## Two\n", &["a.md:3: no empty line before the heading"]);
        check("text\n#hashtag\n```sh\n# a comment\nls\n# another\n```\n", &[]);
    }

    #[test]
    fn links_lead_to_files() {
        check("[here](src/pages.rs) and [there](src/walls.rs#top), [above](#top), [out](https://example.org)", &[]);
        check("![a picture](src/none.png)", &["a.md:1: there is no file src/none.png"]);
        check("```\n[not](src/a-link.rs)\n```\n", &[]);
    }
}
