//! What a request wants of its answer, and of the run that makes it.

use super::question::{AnswerFormat, compose};
use crate::guard::Caller;
use crate::refusal::Refusal;
use crate::state::{AppState, Origin, RunOrder};
use crate::workers::TeamChoice;
use lemon_exec::Budget;
use lemon_exec::worker::ChatMessage;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

/// Stop sequences of a request.
const MOST_STOPS: usize = 4;
/// Bytes of what a request says of itself.
const MOST_METADATA: usize = 16 * 1024;

/// What only LEMON understands.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
pub struct LemonWish {
    /// Tokens the run may spend, orchestrator and all agents together.
    pub budget_tokens: Option<u64>,
    /// US dollars the run may spend.
    #[schema(minimum = 0)]
    pub budget_usd: Option<f64>,
    /// Calls the run may make.
    pub budget_calls: Option<u64>,
    /// Seconds the run may take.
    #[schema(minimum = 1)]
    pub timeout_s: Option<f64>,
    /// The team, as a specification in YAML, instead of that of the model.
    pub spec: Option<String>,
}

/// The parts of a request that every protocol has, by other names.
#[derive(Debug, Default)]
pub struct Wish {
    pub model: String,
    pub messages: Vec<ChatMessage>,
    pub max_tokens: Option<u64>,
    pub temperature: Option<f64>,
    pub seed: Option<i64>,
    pub stop: Vec<String>,
    pub user: Option<String>,
    pub metadata: Option<Value>,
    pub format: AnswerFormat,
    pub lemon: LemonWish,
}

impl Wish {
    /// The run that was asked for.
    ///
    /// # Errors
    /// A field has a value that cannot be honoured, or there is no such model.
    pub fn order(&self, app: &AppState, caller: Caller) -> Result<RunOrder, Refusal> {
        if let Some(temperature) = self.temperature.filter(|it| !(0.0..=2.0).contains(it)) {
            return Err(Refusal::field("temperature", format!("expected a number from 0 to 2, found {temperature}")));
        }
        if self.stop.len() > MOST_STOPS {
            return Err(Refusal::field(
                "stop",
                format!("expected at most {MOST_STOPS} texts, found {}", self.stop.len()),
            ));
        }
        if self.metadata.as_ref().is_some_and(|it| !it.is_object() || it.to_string().len() > MOST_METADATA) {
            return Err(Refusal::field("metadata", format!("expected an object of at most {MOST_METADATA} bytes")));
        }
        let LemonWish { budget_tokens, budget_usd, budget_calls, timeout_s, spec } = &self.lemon;
        if budget_usd.is_some_and(|usd| usd < 0.0) {
            return Err(Refusal::field("lemon.budget_usd", "expected a number of at least 0"));
        }
        if timeout_s.is_some_and(|seconds| seconds <= 0.0) {
            return Err(Refusal::field("lemon.timeout_s", "expected a number above 0"));
        }
        if budget_usd.is_some() {
            lemon_workers::check_prices(app.workers.resolved.capacities())?;
        }
        let team = match spec {
            None => app.workers.choice(&self.model)?,
            Some(text) => {
                app.workers.check(text, "lemon.spec")?;
                TeamChoice::Text(text.clone())
            }
        };
        let question = self.format.ask(compose(&self.messages)?);
        let seed = match (self.seed, self.temperature) {
            (Some(seed), _) => Some(seed as u64),
            // A client that wants to sample wants another sample each time.
            (None, Some(temperature)) if temperature > 0.0 => Some(random_seed()),
            // As `lemon run`: the same question has the same answer, and costs nothing again.
            (None, _) => None,
        };
        Ok(RunOrder {
            form: question.form,
            team,
            model: self.model.clone(),
            seed,
            budget: Budget { tokens: *budget_tokens, usd: *budget_usd, calls: *budget_calls, seconds: *timeout_s },
            max_tokens: self.max_tokens,
            temperature: self.temperature,
            user: self.user.clone(),
            metadata: self.metadata.clone(),
            ..RunOrder::new(question.text, Origin::Api, caller)
        })
    }

    /// Whether pieces of a reply are pieces of the answer: nothing is cut off it, and nothing is checked at its end.
    pub fn is_plain(&self) -> bool {
        self.stop.is_empty() && self.format.is_text()
    }

    /// The answer up to the first stop sequence.
    pub fn cut<'a>(&self, answer: &'a str) -> &'a str {
        let stops = self.stop.iter().filter(|stop| !stop.is_empty());
        let end = stops.filter_map(|stop| answer.find(stop.as_str())).min().unwrap_or(answer.len());
        answer.get(..end).unwrap_or(answer)
    }
}

/// Reads the text of a message: a string, or a list of parts that are texts.
///
/// # Errors
/// A part is something else than text.
pub fn text_of(content: &Value, param: &str) -> Result<String, Refusal> {
    let part = |part: &Value| match (part["type"].as_str(), part["text"].as_str()) {
        (Some("text" | "input_text" | "output_text"), Some(text)) => Ok(text.to_owned()),
        (Some("refusal"), _) => Ok(String::new()),
        (kind, _) => {
            let fact = format!("expected a part of the type `text`, found `{}`", kind.unwrap_or("no type"));
            Err(Refusal::field(param, fact).hint("teams read text only"))
        }
    };
    match content {
        Value::String(text) => Ok(text.clone()),
        Value::Null => Ok(String::new()),
        Value::Array(parts) => Ok(parts.iter().map(part).collect::<Result<Vec<_>, _>>()?.join("\n")),
        _ => Err(Refusal::field(param, "expected a text or a list of parts")),
    }
}

/// A message of the speaker that a request names.
///
/// # Errors
/// There is none of this name, or it is a tool.
pub fn said(role: &str, content: String, param: &str) -> Result<ChatMessage, Refusal> {
    match role {
        "system" | "developer" => Ok(ChatMessage::system(content)),
        "user" => Ok(ChatMessage::user(content)),
        "assistant" => Ok(ChatMessage::assistant(content)),
        "tool" | "function" => {
            Err(Refusal::field(param, "messages of tools are not supported").code("unsupported_value"))
        }
        other => {
            let fact = format!("expected the role system, developer, user or assistant, found `{other}`");
            Err(Refusal::field(param, fact))
        }
    }
}

/// That a field is absent or says what is so anyway.
///
/// # Errors
/// It asks for something that is not done.
pub fn not_asked(param: &str, value: Option<&Value>) -> Result<(), Refusal> {
    let is_nothing = match value {
        None | Some(Value::Null | Value::Bool(false)) => true,
        Some(Value::Array(list)) => list.is_empty(),
        Some(Value::Object(map)) => map.is_empty(),
        Some(Value::Number(number)) => number.as_f64() == Some(0.0),
        Some(Value::String(text)) => matches!(text.as_str(), "" | "none" | "auto"),
        Some(Value::Bool(true)) => false,
    };
    match is_nothing {
        true => Ok(()),
        false => Err(Refusal::field(param, format!("`{param}` is not supported")).code("unsupported_parameter")),
    }
}

fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    // Seeds of 31 bits are whole numbers in every language that reads them.
    RandomState::new().build_hasher().finish() >> 33
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn texts_are_strings_or_lists_of_parts() {
        assert_eq!(text_of(&json!("a"), "x").unwrap(), "a");
        assert_eq!(text_of(&Value::Null, "x").unwrap(), "");
        let parts = json!([{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}]);
        assert_eq!(text_of(&parts, "x").unwrap(), "a\nb");
        for value in [json!(1), json!([{"type": "image_url", "image_url": {"url": "x"}}]), json!([1]), json!({})] {
            assert_eq!(text_of(&value, "x").unwrap_err().param.as_deref(), Some("x"), "{value}");
        }
    }

    #[test]
    fn the_first_stop_sequence_ends_the_answer() {
        let wish = Wish { stop: vec!["END".into(), "\n".into(), String::new()], ..Wish::default() };
        assert_eq!([wish.cut("a END b"), wish.cut("a\nb END"), wish.cut("a"), wish.cut("END")], ["a ", "a", "a", ""]);
    }

    #[test]
    fn what_is_not_done_is_refused() {
        for value in [json!(null), json!(false), json!([]), json!({}), json!(0), json!("none"), json!("auto")] {
            assert!(not_asked("tools", Some(&value)).is_ok(), "{value}");
        }
        for value in [json!(true), json!([1]), json!({"a": 1}), json!(2), json!("required")] {
            assert_eq!(not_asked("tools", Some(&value)).unwrap_err().code, Some("unsupported_parameter"), "{value}");
        }
    }
}
