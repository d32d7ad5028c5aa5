//! The tags of a page, for tests that compare pages by what a browser makes of them.

/// The names of all tags and of their attributes, in order: the markup without any of its texts. Quotes are read as a browser
/// reads them. What is inside of scripts and styles is text up to their end tag.
pub fn tags(markup: &str) -> Vec<String> {
    let mut tags = Vec::new();
    let mut rest = markup;
    while let Some((_, after)) = rest.split_once('<') {
        let mut quote = None;
        let mut tag = String::new();
        let mut end = after.len();
        for (place, char) in after.char_indices() {
            match (quote, char) {
                (None, '>') => {
                    end = place + 1;
                    break;
                }
                (None, '"' | '\'') => quote = Some(char),
                (Some(open), _) if open == char => quote = None,
                (None, _) => tag.push(char),
                (Some(_), _) => {}
            }
        }
        rest = &after[end..];
        let raw = ["script", "style"].into_iter().find(|raw| tag.starts_with(raw));
        if let Some(raw) = raw {
            rest = &rest[rest.find(&format!("</{raw}")).unwrap_or(rest.len())..];
        }
        tags.push(tag);
    }
    tags
}
