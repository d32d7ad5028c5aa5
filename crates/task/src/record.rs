//! One record of each public format: what it asks and what the gold answer is, or why it is broken.

use serde_json::{Map, Value};

use crate::{
    SetName,
    grade::{choice, number},
    item::{Gold, Item, Problem, Task, letter},
    read::NOT_UTF8,
};

/// Reads a JSON record of any set but MMLU.
pub(crate) fn from_json(set: SetName, position: usize, content: &[u8]) -> Result<Item, String> {
    let text = std::str::from_utf8(content).map_err(|_| NOT_UTF8.to_owned())?;
    let value: Value = serde_json::from_str(text).map_err(|error| not_json(&error))?;
    let Value::Object(fields) = value else { return Err("not a JSON object".to_owned()) };
    let fields = Fields(fields);
    let (question, gold) = match set {
        SetName::Gsm8k => gsm8k(&fields)?,
        SetName::Svamp => svamp(&fields)?,
        SetName::MultiArith => multiarith(&fields)?,
        SetName::Aqua => aqua(&fields)?,
        SetName::HumanEval | SetName::HumanEvalPy => human_eval(&fields)?,
        SetName::Custom | SetName::Mmlu => custom(&fields)?,
    };
    let id = fields.id().unwrap_or_else(|| position.to_string());
    // No grader reads it: one that is no text is none.
    let subject = fields.text("subject").ok();
    Ok(Item { task: Task { id, question, subject }, position, set, gold })
}

/// Reads a row of MMLU: question, four options, letter.
pub(crate) fn from_mmlu_row(subject: &str, position: usize, row: Vec<String>) -> Result<Item, String> {
    let count = row.len();
    let [question, options @ .., answer] = row.as_slice() else {
        return Err(format!("expected 6 fields, found {count}"));
    };
    if count != 6 {
        return Err(format!("expected 6 fields, found {count}"));
    }
    let (question, gold) = multiple_choice(question, options.to_vec(), answer_letter(answer, options.len())?)?;
    let task = Task { id: position.to_string(), question, subject: Some(subject.to_owned()) };
    Ok(Item { task, position, set: SetName::Mmlu, gold })
}

/// The parser's reason without its position, which counts from the record and would be taken for one in the file.
fn not_json(error: &serde_json::Error) -> String {
    let reason = error.to_string();
    format!("not JSON: {}", reason.split(" at line ").next().unwrap_or_default())
}

type Read = Result<(String, Gold), String>;

fn gsm8k(fields: &Fields) -> Read {
    let answer = fields.text("answer")?;
    let (_, last) = answer.rsplit_once("####").ok_or("`answer` has no `####`")?;
    Ok((fields.question("question")?, number_gold(last)?))
}

fn svamp(fields: &Fields) -> Read {
    let question = format!("{} {}", fields.question("Body")?, fields.question("Question")?);
    Ok((question, number_gold(&fields.number("Answer")?)?))
}

fn multiarith(fields: &Fields) -> Read {
    let solutions = fields.get("lSolutions")?.as_array().ok_or("`lSolutions` is not a list")?;
    let first = solutions.first().ok_or("`lSolutions` is empty")?;
    let number = first.as_number().ok_or("`lSolutions` holds no number")?;
    Ok((fields.question("sQuestion")?, number_gold(&number.to_string())?))
}

fn aqua(fields: &Fields) -> Read {
    let options = fields.texts("options")?.into_iter().enumerate().map(|(index, option)| unlettered(index, &option));
    let options: Vec<String> = options.collect();
    let answer = answer_letter(&fields.text("correct")?, options.len())?;
    multiple_choice(&fields.question("question")?, options, answer)
}

fn human_eval(fields: &Fields) -> Read {
    let prompt = fields.text("prompt")?;
    let entry_point = fields.text("entry_point")?;
    let test = fields.text("test")?;
    if !prompt.contains(&format!("def {entry_point}(")) {
        return Err(format!("`prompt` does not define `{entry_point}`"));
    }
    if !test.contains("def check(") {
        return Err("`test` does not define `check`".to_owned());
    }
    let question = format!(
        "Complete this Python function. Return the complete function, with all its imports, in one ```python block.\n\n\
         ```python\n{}\n```",
        prompt.trim_end()
    );
    // Sets may leave it out, and no grader reads it.
    let solution = fields.text("canonical_solution").ok();
    Ok((question, Gold::Code(Problem { prompt, entry_point, test, solution })))
}

/// `{question, answer}` or multiple choice: `options` or `choices`, and `answer` or `correct` as a letter, the text
/// of an option or its index from 0.
fn custom(fields: &Fields) -> Read {
    let question = fields.question("question")?;
    let answer = fields.get("answer").or_else(|_| fields.get("correct")).map_err(|_| "no field `answer`".to_owned())?;
    let options = fields.texts("options").or_else(|error| match fields.get("choices") {
        Ok(_) => fields.texts("choices"),
        Err(_) => Err(error),
    });
    match options {
        Ok(options) => {
            let options: Vec<_> = options.iter().enumerate().map(|(index, text)| unlettered(index, text)).collect();
            let answer = answer_among(answer, &options)?;
            multiple_choice(&question, options, answer)
        }
        Err(error) if fields.get("options").is_ok() || fields.get("choices").is_ok() => Err(error),
        Err(_) => Ok((question, open_gold(answer)?)),
    }
}

fn open_gold(answer: &Value) -> Result<Gold, String> {
    match answer {
        Value::Number(number) => number_gold(&number.to_string()),
        Value::String(text) if text.trim().is_empty() => Err("`answer` is empty".to_owned()),
        Value::String(text) => {
            let last = text.rsplit_once("####").map_or(text.as_str(), |(_, last)| last).trim();
            Ok(number_gold(last).unwrap_or_else(|_| Gold::Text(last.to_owned())))
        }
        _ => Err("`answer` is neither a text nor a number".to_owned()),
    }
}

fn number_gold(text: &str) -> Result<Gold, String> {
    number::whole(text).map(Gold::Number).ok_or_else(|| format!("the gold `{}` is not a number", text.trim()))
}

fn answer_among(answer: &Value, options: &[String]) -> Result<usize, String> {
    match answer {
        Value::String(text) => answer_letter(text, options.len())
            .ok()
            .or_else(|| choice::same_text(text, options))
            .ok_or_else(|| format!("`{text}` is neither the letter nor the text of one option")),
        Value::Number(number) => number
            .as_u64()
            .and_then(|index| usize::try_from(index).ok())
            .filter(|index| *index < options.len())
            .ok_or_else(|| format!("there is no option {number}, counted from 0")),
        _ => Err("`answer` is neither a text nor a number".to_owned()),
    }
}

fn answer_letter(text: &str, options: usize) -> Result<usize, String> {
    let text = text.trim();
    (0..options)
        .find(|index| text.chars().eq([letter(*index)]))
        .ok_or_else(|| format!("`{text}` is not the letter of one of the {options} options"))
}

fn multiple_choice(question: &str, options: Vec<String>, answer: usize) -> Read {
    if options.len() < 2 || options.len() > 26 {
        return Err(format!("expected 2 to 26 options, found {}", options.len()));
    }
    if question.trim().is_empty() {
        return Err("the question is empty".to_owned());
    }
    let lettered = options.iter().enumerate().map(|(index, option)| format!("\n{}) {}", letter(index), option.trim()));
    Ok((format!("{}\n{}", question.trim(), lettered.collect::<String>()), Gold::Choice { options, answer }))
}

/// Takes the option's own letter off its text: `B)5 km` as the second option is `5 km`.
fn unlettered(index: usize, option: &str) -> String {
    let rest = option.trim_start().strip_prefix(letter(index)).and_then(|rest| rest.strip_prefix([')', '.', ':']));
    rest.unwrap_or(option).trim().to_owned()
}

/// The fields of a record, read with a reason where one is missing or of another type.
struct Fields(Map<String, Value>);

impl Fields {
    fn get(&self, name: &str) -> Result<&Value, String> {
        self.0.get(name).filter(|value| !value.is_null()).ok_or_else(|| format!("no field `{name}`"))
    }

    fn text(&self, name: &str) -> Result<String, String> {
        self.get(name)?.as_str().map(str::to_owned).ok_or_else(|| format!("`{name}` is not a text"))
    }

    fn question(&self, name: &str) -> Result<String, String> {
        let text = self.text(name)?.trim().to_owned();
        if text.is_empty() { Err(format!("`{name}` is empty")) } else { Ok(text) }
    }

    fn number(&self, name: &str) -> Result<String, String> {
        self.get(name)?.as_number().map(ToString::to_string).ok_or_else(|| format!("`{name}` is not a number"))
    }

    fn texts(&self, name: &str) -> Result<Vec<String>, String> {
        let list = self.get(name)?.as_array().ok_or_else(|| format!("`{name}` is not a list"))?;
        let texts = list.iter().map(|value| match value {
            Value::String(text) => Ok(text.clone()),
            Value::Number(number) => Ok(number.to_string()),
            _ => Err(format!("`{name}` holds something that is not a text")),
        });
        texts.collect()
    }

    fn id(&self) -> Option<String> {
        ["id", "ID", "task_id", "name", "iIndex"].iter().find_map(|name| match self.0.get(*name)? {
            Value::String(text) if !text.is_empty() => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        })
    }
}
