//! The JSON Schema of the language, for endpoints with structured output.

use crate::{Language, Next, Share};
use serde_json::{Value, json};

/// The schema of a specification in this language, in the strict subset that structured-output endpoints take: every
/// property required, none beyond them, `null` where a field is inherited.
pub fn json_schema(language: &Language) -> Value {
    let limits = &language.limits;
    object(json!({
        "agents": {
            "type": "array",
            "description": "The agents of the team. An agent reads only agents that stand before it.",
            "maxItems": limits.agents,
            "items": agent(language),
        },
        "answer": answer(language),
        "next": {
            "type": "string",
            "enum": names(Next::ALL),
            "description": "`stop`: the answer of this round is final. `review`: read the results and write another round.",
        },
    }))
}

fn agent(language: &Language) -> Value {
    let limits = &language.limits;
    let mut capacities = "The level of model that serves it, weakest first.".to_owned();
    if !language.efforts.is_empty() {
        capacities = format!("The model that serves it and how it replies: {}.", language.told_capacities().join(", "));
    }
    let bases: Vec<&str> = language.roles.iter().map(|role| role.name.as_str()).collect();
    let mut properties = json!({
        "id": id("A short name, unique in the run.", language),
        "base": { "type": "string", "enum": bases, "description": "The role it inherits from." },
        "role": {
            "type": ["string", "null"],
            "maxLength": limits.role_chars,
            "description": "Who it is; null takes the base role's title.",
        },
        "duty": {
            "type": ["string", "null"],
            "maxLength": limits.duty_chars,
            "description": "What it must do; null takes the base role's duty.",
        },
        "capacity": {
            "type": "string",
            "enum": language.capacities,
            "description": capacities,
        },
        "after": references("The ids of the earlier agents whose output it reads.", language),
        "share": {
            "type": "string",
            "enum": names(Share::ALL),
            "description": "What its readers see: all of its reply, or only the answer extracted from it.",
        },
    });
    if !language.tools.is_empty() {
        properties["tools"] = json!({
            "type": "array",
            "items": { "type": "string", "enum": language.tools },
            "maxItems": limits.tools,
            "description": "The tools it may call while it works; most agents need none.",
        });
    }
    object(properties)
}

fn answer(language: &Language) -> Value {
    let mut rules =
        "`last`: the last that succeeded. `vote`: the most frequent. `judge`: one more call decides.".to_owned();
    if language.tests {
        rules.push_str(" `test`: the program that passes most of the question's examples.");
    }
    let mut answer = object(json!({
        "from": references("The ids of the agents whose results count.", language),
        "by": {
            "type": "string",
            "enum": names(language.answer_rules()),
            "description": rules,
        },
    }));
    answer["description"] = json!("Whose results become the answer, and how.");
    answer
}

fn references(description: &str, language: &Language) -> Value {
    json!({
        "type": "array",
        "items": id("The id of an agent.", language),
        "maxItems": language.limits.parents,
        "description": description,
    })
}

fn id(description: &str, language: &Language) -> Value {
    json!({
        "type": "string",
        "pattern": "^[A-Za-z][A-Za-z0-9_-]*$",
        "maxLength": language.limits.id_chars,
        "description": description,
    })
}

/// An object with exactly these properties.
fn object(properties: Value) -> Value {
    let required: Vec<String> = properties.as_object().into_iter().flat_map(|all| all.keys().cloned()).collect();
    json!({ "type": "object", "required": required, "properties": properties, "additionalProperties": false })
}

fn names<T: Copy + Into<&'static str>>(all: &[T]) -> Vec<&'static str> {
    all.iter().map(|word| (*word).into()).collect()
}
