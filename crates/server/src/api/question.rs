//! From a conversation to the task of a team.

use crate::refusal::Refusal;
use lemon_exec::Form;
use lemon_exec::worker::{ChatMessage, Speaker};
use serde_json::Value;

/// What is asked where the last message is one of the model.
const GO_ON: &str = "Continue your last message.";
/// Bytes of a JSON Schema.
const MOST_SCHEMA: usize = 64 * 1024;

/// What stands between a conversation and the question it ends with.
pub(crate) const LAST: &str = "Reply to what comes last:\n\n";

/// A task, and the form of its answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The task, with what was said before it.
    pub text: String,
    /// The form of the answer, where the conversation says more of it than the text would.
    pub form: Option<Form>,
}

/// The task that a conversation ends with. What was said before it is its context.
///
/// # Errors
/// There is nothing to reply to.
pub fn compose(messages: &[ChatMessage]) -> Result<Question, Refusal> {
    let Some((last, before)) = messages.split_last() else {
        return Err(Refusal::field("messages", "expected at least one message, found none"));
    };
    if last.content.trim().is_empty() {
        return Err(Refusal::field("messages", "the last message is empty"));
    }
    // Where the model spoke last, it is asked to go on.
    let (asked, before) = match last.role {
        Speaker::Assistant => (GO_ON, messages),
        Speaker::System | Speaker::User | Speaker::Tool => (last.content.trim(), before),
    };
    let of = |role: Speaker| before.iter().filter(move |message| message.role == role);
    let instructions: Vec<&str> = of(Speaker::System).map(|message| message.content.trim()).collect();
    let instructions = instructions.join("\n\n").trim().to_owned();
    let turns: Vec<&ChatMessage> = before.iter().filter(|message| message.role != Speaker::System).collect();
    if instructions.is_empty() && turns.is_empty() {
        return Ok(Question { text: asked.to_owned(), form: None });
    }
    let mut text = String::new();
    if !instructions.is_empty() {
        text.push_str(&instructions);
        text.push_str("\n\n");
    }
    if !turns.is_empty() {
        text.push_str("The conversation so far:\n\n");
        for turn in turns {
            let who = if turn.role == Speaker::User { "User" } else { "Assistant" };
            text.push_str(&format!("{who}: {}\n\n", turn.content.trim()));
        }
        text.push_str(LAST);
    }
    text.push_str(asked);
    // What stands before the question does not make a number of a text, or a choice of its lists.
    let form = match (Form::of(asked), Form::of(&instructions)) {
        (Form::Open, Form::Json) => Form::Json,
        (form, _) => form,
    };
    Ok(Question { text, form: Some(form) })
}

/// What the answer must look like.
#[derive(Debug, Clone, Default)]
pub enum AnswerFormat {
    /// Any text.
    #[default]
    Text,
    /// A JSON object.
    Json,
    /// JSON that obeys a schema.
    Schema(Box<Schema>),
}

/// A JSON Schema, checked.
#[derive(Debug, Clone)]
pub struct Schema {
    text: String,
    validator: std::sync::Arc<jsonschema::Validator>,
}

impl AnswerFormat {
    /// Reads `response_format`, or `text.format`, which has the same forms but for one level of nesting.
    ///
    /// # Errors
    /// There is no such format, or the schema is none.
    pub fn read(value: Option<&Value>, param: &str) -> Result<Self, Refusal> {
        let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(AnswerFormat::Text) };
        match value["type"].as_str() {
            Some("text") => Ok(AnswerFormat::Text),
            Some("json_object") => Ok(AnswerFormat::Json),
            Some("json_schema") => {
                let schema =
                    if value["json_schema"].is_object() { &value["json_schema"]["schema"] } else { &value["schema"] };
                Schema::new(schema, param).map(|schema| AnswerFormat::Schema(Box::new(schema)))
            }
            _ => Err(Refusal::field(param, "expected the type `text`, `json_object` or `json_schema`")),
        }
    }

    /// The question with what the answer must look like.
    pub fn ask(&self, question: Question) -> Question {
        let how = match self {
            AnswerFormat::Text => return question,
            AnswerFormat::Json => "Reply with one JSON object and nothing else.".to_owned(),
            AnswerFormat::Schema(schema) => {
                format!("Reply with JSON that obeys this JSON Schema, and nothing else:\n{}", schema.text)
            }
        };
        Question { text: format!("{}\n\n{how}", question.text), form: Some(Form::Json) }
    }

    /// Whether the answer may be any text.
    pub fn is_text(&self) -> bool {
        matches!(self, AnswerFormat::Text)
    }

    /// The answer in the format.
    ///
    /// # Errors
    /// It is not in the format; the text says why.
    pub fn take(&self, answer: &str) -> Result<String, String> {
        let check = |value: &Value| match self {
            AnswerFormat::Text => Ok(()),
            AnswerFormat::Json if value.is_object() => Ok(()),
            AnswerFormat::Json => Err("it is no JSON object".to_owned()),
            AnswerFormat::Schema(schema) => match schema.validator.iter_errors(value).next() {
                None => Ok(()),
                Some(error) => Err(format!("at `{}`: {error}", error.instance_path())),
            },
        };
        if self.is_text() {
            return Ok(answer.to_owned());
        }
        let text = bare(answer);
        let value: Value = serde_json::from_str(text).map_err(|error| format!("it is no JSON: {error}"))?;
        check(&value).map(|()| text.to_owned())
    }
}

impl Schema {
    fn new(schema: &Value, param: &str) -> Result<Self, Refusal> {
        if !schema.is_object() {
            return Err(Refusal::field(param, "expected a JSON Schema, found no object"));
        }
        let text = schema.to_string();
        if text.len() > MOST_SCHEMA {
            return Err(Refusal::field(
                param,
                format!("expected a schema of at most {MOST_SCHEMA} bytes, found {}", text.len()),
            ));
        }
        let validator = jsonschema::validator_for(schema)
            .map_err(|error| Refusal::field(param, format!("the schema cannot be used: {error}")))?;
        Ok(Schema { text, validator: validator.into() })
    }
}

/// The JSON in a reply: without a fence of Markdown, and without words around it.
fn bare(answer: &str) -> &str {
    let answer = answer.trim();
    let fenced = || {
        let (_, rest) = answer.split_once("```")?;
        let (_, body) = rest.split_once('\n')?;
        Some(body.split_once("```")?.0.trim())
    };
    let braced = || {
        let start = answer.find(['{', '['])?;
        let end = answer.rfind(['}', ']'])? + 1;
        answer.get(start..end)
    };
    match answer.starts_with(['{', '[']) {
        true => answer,
        false => fenced().or_else(braced).unwrap_or(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_question_is_the_task_as_it_is() {
        let question = compose(&[ChatMessage::user(" What is 2 + 3? ")]).unwrap();
        assert_eq!(question, Question { text: "What is 2 + 3?".into(), form: None });
    }

    #[test]
    fn what_was_said_before_is_context() {
        let messages = [
            ChatMessage::system("Be brief."),
            ChatMessage::user("Ana has 3 pens."),
            ChatMessage::assistant("Noted."),
            ChatMessage::user("She buys 4. How many has she?"),
        ];
        let question = compose(&messages).unwrap();
        let expected = "Be brief.\n\nThe conversation so far:\n\nUser: Ana has 3 pens.\n\nAssistant: Noted.\n\n\
                        Reply to what comes last:\n\nShe buys 4. How many has she?";
        assert_eq!((question.text.as_str(), question.form), (expected, Some(Form::Number)));
    }

    #[test]
    fn a_conversation_ends_with_words() {
        let question = |message| compose(&[message]).unwrap().text;
        assert_eq!(question(ChatMessage::system("Say hello.")), "Say hello.");
        let going_on = question(ChatMessage::assistant("Once upon"));
        assert!(going_on.contains("Assistant: Once upon") && going_on.ends_with(GO_ON), "{going_on}");
        for messages in [&[][..], &[ChatMessage::user("  ")]] {
            assert_eq!(compose(messages).unwrap_err().param.as_deref(), Some("messages"), "{messages:?}");
        }
    }

    #[test]
    fn answers_in_json_are_checked() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
        let format = json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema}});
        let format = AnswerFormat::read(Some(&format), "response_format").unwrap();
        assert_eq!(format.take("{\"n\": 3}").unwrap(), "{\"n\": 3}");
        assert_eq!(format.take("Here it is:\n```json\n{\"n\": 3}\n```\nDone.").unwrap(), "{\"n\": 3}");
        assert_eq!(format.take("The answer is {\"n\": 3}, I think.").unwrap(), "{\"n\": 3}");
        assert!(format.take("{\"n\": \"three\"}").unwrap_err().contains("/n"));
        assert!(format.take("three").unwrap_err().contains("no JSON"));
        assert!(AnswerFormat::read(Some(&json!({"type": "json_object"})), "x").unwrap().take("[1]").is_err());
    }

    #[test]
    fn formats_that_are_none_are_refused() {
        for value in [
            json!({"type": "xml"}),
            json!({}),
            json!("text"),
            json!({"type": "json_schema"}),
            json!({"type": "json_schema", "json_schema": {"schema": {"type": "nonsense"}}}),
            json!({"type": "json_schema", "json_schema": {"schema": {"$ref": "http://127.0.0.1:1/x"}}}),
        ] {
            assert!(AnswerFormat::read(Some(&value), "response_format").is_err(), "{value}");
        }
        assert!(AnswerFormat::read(Some(&Value::Null), "x").unwrap().is_text());
    }
}
