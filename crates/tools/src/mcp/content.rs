//! What a result says, as text. Images, sounds and files are summarised.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};

/// The text of a result, not yet cleaned. Where there is no text, the structured result takes its place.
pub(crate) fn text(result: &CallToolResult) -> String {
    let blocks = result.content.iter().map(block).collect::<Vec<_>>().join("\n");
    match &result.structured_content {
        Some(value) if blocks.trim().is_empty() => value.to_string(),
        _ => blocks,
    }
}

fn block(block: &ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => format!("[image: {}, {}]", image.mime_type, bytes(&image.data)),
        ContentBlock::Audio(audio) => format!("[audio: {}, {}]", audio.mime_type, bytes(&audio.data)),
        ContentBlock::Resource(resource) => match &resource.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => format!("[resource: {uri}]\n{text}"),
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                let kind = mime_type.as_deref().unwrap_or("unknown type");
                format!("[resource: {uri}, {kind}, {}]", bytes(blob))
            }
            _ => "[resource of an unknown type]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => format!("[link: {}, {}]", link.uri, link.name),
        _ => "[content of an unknown type]".to_owned(),
    }
}

/// How much base64 text stands for.
fn bytes(base64: &str) -> String {
    let padding = base64.bytes().rev().take_while(|byte| *byte == b'=').count();
    format!("{} bytes", (base64.len() / 4 * 3).saturating_sub(padding.min(2)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(result: serde_json::Value, expected: &str) {
        let result: CallToolResult = serde_json::from_value(result).unwrap();
        assert_eq!(text(&result), expected);
    }

    #[test]
    fn everything_becomes_text() {
        let image = json!({"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"});
        let file = json!({"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}});
        let blob = json!({"type": "resource", "resource": {"uri": "x:b", "blob": "AAAA"}});
        let link = json!({"type": "resource_link", "uri": "x:c", "name": "see"});
        check(
            json!({"content": [{"type": "text", "text": "one"}, image, file, blob, link]}),
            "one\n[image: image/png, 5 bytes]\n[resource: file:///a]\ninside\n[resource: x:b, unknown type, 3 bytes]\n\
             [link: x:c, see]",
        );
    }

    #[test]
    fn a_structured_result_counts_where_there_is_no_text() {
        check(json!({"structuredContent": {"n": 1}}), r#"{"n":1}"#);
        check(json!({"content": [{"type": "text", "text": "one"}], "structuredContent": {"n": 1}}), "one");
        check(json!({"content": []}), "");
    }
}
