//! Schemas of tools. A server writes them, so they are untrusted: bounded, compiled without a network, matched in linear time.

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

/// The largest schema, as JSON text.
const MOST_BYTES: usize = 64 << 10;
/// How deep a schema or arguments may nest.
const DEPTH: usize = 64;
/// Faults of arguments that are told at most.
const FAULTS: usize = 5;

/// Compiles the schema of an object.
///
/// # Errors
/// It is too large, too deep, refers to another document, or is no schema.
pub(crate) fn compile(schema: &Value) -> Result<Validator, String> {
    if !schema.is_object() {
        return Err("expected a schema that is an object".to_owned());
    }
    if depth(schema, DEPTH) == 0 {
        return Err(format!("the schema is nested more than {DEPTH} deep"));
    }
    let bytes = schema.to_string().len();
    if bytes > MOST_BYTES {
        return Err(format!("the schema has {bytes} bytes, at most {MOST_BYTES} are read"));
    }
    let options = jsonschema::options().with_pattern_options(PatternOptions::regex().size_limit(1 << 20));
    options.build(schema).map_err(|error| crate::clean_line(&error.to_string(), 300))
}

/// Every fault of `value`, with its place.
pub(crate) fn faults(validator: &Validator, value: &Value) -> Vec<String> {
    if depth(value, DEPTH) == 0 {
        return vec![format!("nested more than {DEPTH} deep")];
    }
    let fault = |error: jsonschema::ValidationError<'_>| {
        let place = error.instance_path().to_string();
        let place = if place.is_empty() { String::new() } else { format!("{place}: ") };
        crate::clean_line(&format!("{place}{error}"), 300)
    };
    validator.iter_errors(value).take(FAULTS).map(fault).collect()
}

/// What is left of `most` levels below the deepest value; 0 where there is more than that.
fn depth(value: &Value, most: usize) -> usize {
    if most == 0 {
        return 0;
    }
    let below = |value: &Value| depth(value, most - 1);
    match value {
        Value::Array(items) => items.iter().map(below).min().unwrap_or(most),
        Value::Object(entries) => entries.values().map(below).min().unwrap_or(most),
        _ => most,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_are_checked_with_their_place() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
        let validator = compile(&schema).unwrap();
        assert_eq!(faults(&validator, &json!({"n": 3})), Vec::<String>::new());
        assert_eq!(faults(&validator, &json!({})), ["\"n\" is a required property"]);
        assert_eq!(faults(&validator, &json!({"n": "x"})), ["/n: \"x\" is not of type \"integer\""]);
    }

    #[test]
    fn hostile_schemas_are_refused() {
        let check = |schema: Value, expected: &str| {
            let fault = compile(&schema).err().unwrap_or_default();
            assert!(fault.contains(expected), "{fault:?} should contain {expected:?}");
        };
        check(json!(true), "expected a schema that is an object");
        check(json!({"type": 3}), "3");
        check(json!({"$ref": "http://127.0.0.1:1/schema"}), "http://127.0.0.1:1/schema");
        check(json!({"$ref": "file:///etc/passwd"}), "file:///etc/passwd");
        check(json!({"description": "x".repeat(70_000)}), "at most 65536 are read");
        let deep = (0..100).fold(json!({}), |inner, _| json!({"not": inner}));
        check(deep, "nested more than 64 deep");
    }

    #[test]
    fn a_schema_that_refers_to_itself_ends() {
        let schema = json!({"$ref": "#"});
        if let Ok(validator) = compile(&schema) {
            faults(&validator, &json!({"a": 1}));
        }
        let list = json!({"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": false});
        let validator = compile(&list).unwrap();
        assert!(faults(&validator, &json!({"next": {"next": {}}})).is_empty());
        assert!(!faults(&validator, &json!({"next": {"last": {}}})).is_empty());
        let deep = (0..100).fold(json!({}), |inner, _| json!({"next": inner}));
        assert_eq!(faults(&validator, &deep), ["nested more than 64 deep"]);
    }

    #[test]
    fn patterns_take_linear_time() {
        let schema = json!({"type": "object", "properties": {"a": {"pattern": "^(a+)+$"}}});
        let validator = compile(&schema).unwrap();
        assert_eq!(faults(&validator, &json!({"a": format!("{}b", "a".repeat(200))})).len(), 1);
    }
}
