//! The tools that the server offers: their names, schemas and arguments.

use rmcp::model::{Tool, ToolAnnotations};
use serde::Deserialize;
use serde_json::{Value, json};

pub const RUN: &str = "run_team";
pub const VALIDATE: &str = "validate_team";
pub const PROFILE: &str = "profile_team";
pub const LIST: &str = "list_runs";
pub const GET: &str = "get_run";

/// Cases of one profile at most.
pub const MOST_CASES: usize = 200;
/// Runs of one listing at most.
pub const MOST_RUNS: usize = 200;

/// `run_team`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunTeam {
    pub question: String,
    pub spec: Option<String>,
    pub budget_tokens: Option<u64>,
    pub budget_usd: Option<f64>,
    pub budget_calls: Option<u64>,
    pub timeout_s: Option<f64>,
}

/// `validate_team`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValidateTeam {
    pub spec: String,
}

/// `profile_team`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileTeam {
    pub spec: String,
    pub cases: Vec<ProfileCase>,
    pub budget_tokens: u64,
}

/// A question and its answer.
#[derive(Debug, Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileCase {
    pub question: String,
    pub answer: String,
}

/// `list_runs`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListRuns {
    pub limit: Option<usize>,
}

/// `get_run`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetRun {
    pub run: String,
    #[serde(default)]
    pub replies: bool,
}

/// All of them.
pub fn all() -> Vec<Tool> {
    let text = |about: &str| json!({ "type": "string", "description": about });
    let number = |about: &str| json!({ "type": "number", "minimum": 0, "description": about });
    let count = |about: &str| json!({ "type": "integer", "minimum": 0, "description": about });
    let spec = text("The team, a YAML specification: agents with id, base, capacity and after");
    let case = json!({
        "type": "object",
        "properties": { "question": text("The question"), "answer": text("The right answer") },
        "required": ["question", "answer"],
        "additionalProperties": false,
    });
    vec![
        tool(
            RUN,
            "Runs a team of language-model agents on a question, inside a hard budget, and returns the answer with what it \
             cost. Without a specification the orchestrator writes the team. Progress is reported per event.",
            json!({
                "question": text("The question"),
                "spec": spec,
                "budget_tokens": count("Tokens the run may spend; the server may allow fewer"),
                "budget_usd": number("US dollars the run may spend"),
                "budget_calls": count("Calls to models the run may make"),
                "timeout_s": number("Seconds the run may take"),
            }),
            &["question"],
            ToolAnnotations::new().read_only(false).destructive(false).idempotent(false).open_world(true),
        ),
        tool(
            VALIDATE,
            "Checks a team specification and returns every fault with its place. No model is called.",
            json!({ "spec": spec }),
            &["spec"],
            read_only(),
        ),
        tool(
            PROFILE,
            "Measures what each decision of a team is worth on cases with known answers: runs the team, and the team with one \
             decision changed. It makes many runs.",
            json!({
                "spec": spec,
                "cases": { "type": "array", "items": case, "minItems": 1, "maxItems": MOST_CASES },
                "budget_tokens": count("Tokens that all these runs may spend together"),
            }),
            &["spec", "cases", "budget_tokens"],
            ToolAnnotations::new().read_only(false).destructive(false).idempotent(false).open_world(true),
        ),
        tool(
            LIST,
            "Lists the newest runs: question, answer, cost, how each ended.",
            json!({ "limit": { "type": "integer", "minimum": 1, "maximum": MOST_RUNS, "description": "Runs at most; 20 where absent" } }),
            &[],
            read_only(),
        ),
        tool(
            GET,
            "Returns one run: its team, what became of each agent, the answer and the cost.",
            json!({
                "run": text("The name of the run, the beginning of it, or `last`"),
                "replies": { "type": "boolean", "description": "Whether to return all that each agent said" },
            }),
            &["run"],
            read_only(),
        ),
    ]
}

fn read_only() -> ToolAnnotations {
    ToolAnnotations::new().read_only(true).open_world(false)
}

fn tool(name: &'static str, about: &'static str, properties: Value, required: &[&str], notes: ToolAnnotations) -> Tool {
    let schema = json!({
        "type": "object", "properties": properties, "required": required, "additionalProperties": false,
    });
    let schema = schema.as_object().cloned().unwrap_or_default();
    Tool::new(name, about, schema).with_annotations(notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether these arguments are read, and whether the schema allows them.
    fn check<T: for<'a> Deserialize<'a>>(name: &str, arguments: Value, allowed: bool) {
        let tool = all().into_iter().find(|tool| tool.name == name).unwrap();
        let schema = jsonschema::validator_for(&tool.schema_as_json_value()).unwrap();
        assert_eq!(schema.is_valid(&arguments), allowed, "{name} {arguments}: schema");
        assert_eq!(serde_json::from_value::<T>(arguments.clone()).is_ok(), allowed, "{name} {arguments}: reader");
    }

    #[test]
    fn schemas_and_readers_agree() {
        check::<RunTeam>(RUN, json!({"question": "a"}), true);
        check::<RunTeam>(RUN, json!({"question": "a", "spec": "b", "budget_tokens": 3, "timeout_s": 0.5}), true);
        check::<RunTeam>(RUN, json!({}), false);
        check::<RunTeam>(RUN, json!({"question": "a", "budget_tokens": -1}), false);
        check::<RunTeam>(RUN, json!({"question": "a", "other": 1}), false);
        check::<ValidateTeam>(VALIDATE, json!({"spec": "a"}), true);
        check::<ValidateTeam>(VALIDATE, json!({"spec": 1}), false);
        let cases = json!([{"question": "a", "answer": "b"}]);
        check::<ProfileTeam>(PROFILE, json!({"spec": "a", "cases": cases, "budget_tokens": 9}), true);
        check::<ProfileTeam>(PROFILE, json!({"spec": "a", "cases": cases}), false);
        check::<ProfileTeam>(PROFILE, json!({"spec": "a", "cases": [{"question": "a"}], "budget_tokens": 9}), false);
        check::<ListRuns>(LIST, json!({}), true);
        check::<ListRuns>(LIST, json!({"limit": 3}), true);
        check::<ListRuns>(LIST, json!({"limit": "3"}), false);
        check::<GetRun>(GET, json!({"run": "last", "replies": true}), true);
        check::<GetRun>(GET, json!({"replies": true}), false);
    }
}
