//! Every form of a trace.

use crate::common::{Folder, endpoint};
use lemon_trace::export::jsonl::read_jsonl;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use serde_json::Value;
use std::path::Path;

const TASK: &str = "Is <b>\"2 & 2\"</b> four? https://example.org/?a=b&c=d";

/// A folder in which a run has ended, with texts that are hard on markup.
fn folder() -> Folder {
    let endpoint = endpoint();
    let folder = Folder::with_endpoint(&endpoint, "");
    folder.lemon(&["run", TASK, "--spec", "pair.yaml", "-q"]).ok();
    folder
}

fn export(folder: &Folder, format: &str, more: &[&str]) -> String {
    folder.lemon(&[&["trace", "export", "--format", format], more].concat()).ok().stdout
}

#[test]
fn the_published_schema() {
    let folder = folder();
    let bare: Value = serde_json::from_str(&export(&folder, "schema", &[])).unwrap();
    let whole: Value = serde_json::from_str(&export(&folder, "schema", &["--content"])).unwrap();
    assert!(!bare.to_string().contains("I have read it.") && whole.to_string().contains("I have read it."));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/schemas/orchestration_trace.schema.json");
    let Ok(schema) = std::fs::read_to_string(path) else {
        println!("skipped: the published schema is not here");
        return;
    };
    let validator = jsonschema::validator_for(&serde_json::from_str(&schema).unwrap()).unwrap();
    for value in [bare, whole] {
        let faults: Vec<String> = validator.iter_errors(&value).map(|fault| fault.to_string()).collect();
        assert!(faults.is_empty(), "{faults:?}");
    }
}

#[test]
fn lines_read_back() {
    let folder = folder();
    let trace = read_jsonl(&export(&folder, "jsonl", &["last"])).unwrap();
    assert_eq!((trace.header.question.as_str(), trace.header.workers.as_str()), (TASK, "endpoints"));
    assert_eq!(trace.summary().agents.len(), 2);
    let listed = &folder.runs()[0];
    assert_eq!(listed["answer"].as_str(), trace.summary().answer.as_deref());
    assert_eq!(listed["tokens"].as_u64(), Some(trace.summary().tokens.total));
}

#[test]
fn otlp_parses() {
    let text = export(&folder(), "otlp", &[]);
    let request: ExportTraceServiceRequest = serde_json::from_str(&text).unwrap();
    let spans = &request.resource_spans[0].scope_spans[0].spans;
    assert_eq!(spans.iter().filter(|span| span.name.starts_with("invoke_agent ")).count(), 2);
    assert!(!text.contains("I have read it."), "texts stay here");
}

/// Tags that are opened are closed, in order; text and attributes are escaped.
#[track_caller]
fn check_markup(text: &str) {
    let mut open = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once('<') {
        let (tag, after) = after.split_once('>').unwrap_or_else(|| panic!("a tag does not end: {after:.80}"));
        rest = after;
        let name = tag.split(|c: char| c.is_whitespace() || c == '/').next().unwrap_or_default();
        if let Some(closed) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(closed), "closed out of order");
        } else if name == "style" || name == "script" {
            rest = rest.split_once(&format!("</{name}>")).unwrap().1;
        } else if !tag.ends_with('/')
            && !["!doctype", "!DOCTYPE", "?xml", "meta", "br", "hr", "col", "input", "img"].contains(&name)
        {
            open.push(name.to_owned());
        }
    }
    assert!(open.is_empty(), "never closed: {open:?}");
}

#[test]
fn a_picture() {
    let text = export(&folder(), "svg", &[]);
    assert!(text.trim_start().starts_with("<svg") || text.trim_start().starts_with("<?xml"), "{text:.100}");
    check_markup(&text);
    assert!(["one", "two", "First"].iter().all(|word| text.contains(word)));
    assert!(!text.contains("<script") && !text.contains("<b>"));
}

#[test]
fn a_page_of_its_own() {
    let text = export(&folder(), "html", &[]);
    check_markup(&text);
    for outside in ["src=", "<link", "@import", "url(http", "href=\"http", "href='http", "href=\"//"] {
        assert!(!text.contains(outside), "the page needs {outside}");
    }
    assert!(!text.contains("<b>\"2 & 2\"</b>"), "the task is text, not markup");
    assert!(text.contains("&lt;b&gt;") && text.contains("I have read it."));
}

#[test]
fn into_a_file() {
    let folder = folder();
    for format in ["schema", "jsonl", "otlp", "svg", "html"] {
        let ran = folder.lemon(&["trace", "export", "--format", format, "--out", "file"]).ok();
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", "wrote file\n"));
        assert_eq!(folder.read("file"), export(&folder, format, &[]));
    }
    let nowhere = ["trace", "export", "--format", "svg", "--out", "no/such/folder"];
    folder.lemon(&nowhere).code(2).complains(&["no/such/folder"]);
    folder.lemon(&["trace", "export", "nope", "--format", "svg"]).code(2).complains(&["no run is called `nope`"]);
}

/// A run that never got a team can be looked at like any other.
#[test]
fn a_run_without_a_team() {
    let folder = Folder::with_pair().file("bad.yaml", "agents: 7\n");
    folder.lemon(&["run", TASK, "--workers", "scripted", "--spec", "bad.yaml"]).code(1);
    folder.lemon(&["trace", "show"]).ok();
    check_markup(&export(&folder, "svg", &[]));
    check_markup(&export(&folder, "html", &[]));
    for format in ["schema", "otlp"] {
        assert!(serde_json::from_str::<Value>(&export(&folder, format, &[])).unwrap().is_object());
    }
}
