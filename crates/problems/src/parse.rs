//! Reads files of situations.

use crate::expression::Condition;
use crate::problem::Op;
use crate::situation::{Number, Operand, Situation, SituationQuestion, StepRule, Thing};
use crate::template;
use std::collections::HashSet;
use std::fmt;

/// Reads the situations of a text in the format that [`Situation`] describes. Stops at the first fault.
pub fn parse(text: &str) -> Result<Vec<Situation>, ParseError> {
    let mut situations: Vec<Situation> = Vec::new();
    let mut names = HashSet::new();
    let mut block: Option<Block> = None;
    for (index, line) in text.lines().chain([""]).enumerate() {
        let line_number = index + 1;
        let line = line.trim_end();
        if line.is_empty() {
            situations.extend(block.take().map(Block::finish).transpose()?);
        } else if let Some(name) = line.strip_prefix("@ ") {
            if block.is_some() {
                return Err(fault(line_number, "a block begins inside another", "separate blocks by a blank line"));
            }
            if !names.insert(name) {
                return Err(fault(line_number, format!("the name `{name}` is taken"), "names are unique in a file"));
            }
            block = Some(Block::begin(line_number, name)?);
        } else {
            let hint = "begin a block with `@ name`";
            block
                .as_mut()
                .ok_or_else(|| fault(line_number, "this line is in no block", hint))?
                .read(line_number, line)?;
        }
    }
    Ok(situations)
}

/// A fault of a file of situations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// The file, where known.
    pub file: Option<String>,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub hint: String,
}

impl ParseError {
    /// The same with the name of the file.
    pub fn in_file(self, file: &str) -> Self {
        ParseError { file: Some(file.to_owned()), ..self }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.as_deref().unwrap_or("situations");
        write!(f, "{file}:{}: {} (hint: {})", self.line, self.message, self.hint)
    }
}

impl std::error::Error for ParseError {}

fn fault(line: usize, message: impl Into<String>, hint: &str) -> ParseError {
    ParseError { file: None, line, message: message.into(), hint: hint.to_owned() }
}

/// A block that is being read.
struct Block {
    line: usize,
    situation: Situation,
    /// Wordings of a question whose `= ` line has not come yet.
    open: Vec<String>,
    /// Lines with templates, to be checked when everything is declared.
    templates: Vec<(usize, String)>,
}

impl Block {
    fn begin(line: usize, name: &str) -> Result<Self, ParseError> {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || !name.chars().all(fits) {
            let hint = "small letters, digits and hyphens";
            return Err(fault(line, format!("`{name}` is no name of a situation"), hint));
        }
        let situation = Situation {
            name: name.to_owned(),
            numbers: Vec::new(),
            conditions: Vec::new(),
            things: Vec::new(),
            other_things: Vec::new(),
            stories: Vec::new(),
            extras: Vec::new(),
            questions: Vec::new(),
        };
        Ok(Block { line, situation, open: Vec::new(), templates: Vec::new() })
    }

    fn read(&mut self, line: usize, text: &str) -> Result<(), ParseError> {
        let hint = "lines begin with `n:`, `if:`, `t:`, `u:`, `-`, `+`, `?` or `=`, then a space";
        let Some((mark, rest)) = text.split_once(' ') else {
            return Err(fault(line, format!("`{text}` is no line of a situation"), hint));
        };
        let template = |templates: &mut Vec<(usize, String)>| {
            templates.push((line, rest.to_owned()));
            rest.to_owned()
        };
        match mark {
            "n:" => {
                for part in rest.split(',') {
                    let number = number(part.trim()).ok_or_else(|| {
                        let message = format!("`{}` declares no number", part.trim());
                        fault(line, message, "for example `a 20..90` or `a 20..90*5`, from 1 to 999")
                    })?;
                    if self.declared(number.name) {
                        return Err(fault(line, format!("`{}` is declared twice", number.name), "use another letter"));
                    }
                    self.situation.numbers.push(number);
                }
            }
            "if:" => {
                for part in rest.split(',') {
                    let hint = "for example `a - b*c >= 2`";
                    let condition = Condition::parse(part.trim()).map_err(|why| fault(line, why.to_string(), hint))?;
                    if let Some(name) = condition.names().into_iter().find(|name| !self.declared(*name)) {
                        return Err(undeclared(line, name));
                    }
                    self.situation.conditions.push(condition);
                }
            }
            "t:" => self.situation.things = things(line, rest)?,
            "u:" => self.situation.other_things = things(line, rest)?,
            "-" => self.situation.stories.push(template(&mut self.templates)),
            "+" => self.situation.extras.push(template(&mut self.templates)),
            "?" => self.open.push(template(&mut self.templates)),
            "=" => self.answer(line, rest)?,
            _ => return Err(fault(line, format!("`{mark}` begins no line of a situation"), hint)),
        }
        Ok(())
    }

    fn answer(&mut self, line: usize, text: &str) -> Result<(), ParseError> {
        let mut steps: Vec<StepRule> = Vec::new();
        for part in text.split(';') {
            let hint = "one operation of two operands: `b*c; a-$1`";
            let rule = rule(part.trim()).ok_or_else(|| fault(line, format!("`{}` is no step", part.trim()), hint))?;
            for operand in [rule.left, rule.right] {
                match operand {
                    Operand::Number(name) if !self.declared(name) => return Err(undeclared(line, name)),
                    Operand::Result(index) if index >= steps.len() => {
                        let message = format!("`${}` is no earlier step", index.saturating_add(1));
                        return Err(fault(line, message, "`$1` is the result of the first step"));
                    }
                    _ => {}
                }
            }
            steps.push(rule);
        }
        let used = |index| steps.iter().any(|rule| [rule.left, rule.right].contains(&Operand::Result(index)));
        if let Some(unused) = (0..steps.len() - 1).find(|index| !used(*index)) {
            let message = format!("nothing uses the result of step {}", unused + 1);
            return Err(fault(line, message, "leave the step out or use it"));
        }
        if self.open.is_empty() {
            return Err(fault(line, "no question stands before this answer", "write `? ` lines above it"));
        }
        self.situation.questions.push(SituationQuestion { texts: std::mem::take(&mut self.open), steps });
        Ok(())
    }

    fn finish(self) -> Result<Situation, ParseError> {
        let situation = &self.situation;
        for (line, text) in &self.templates {
            let hint = "see the description of the format";
            for key in template::keys(text).map_err(|why| fault(*line, why, hint))? {
                if !self.known(key) {
                    let hint =
                        "numbers of `n:`, `t`, `t.one`, `u`, `u.one`, `P`, `P.he`, `P.him`, `P.his` (also `Q`, `R`)";
                    return Err(fault(*line, format!("`{{{key}}}` stands for nothing"), hint));
                }
            }
        }
        if !self.open.is_empty() {
            return Err(fault(self.line, "a question has no answer", "write a `= ` line below it"));
        }
        if situation.stories.is_empty() || situation.questions.is_empty() {
            let message = format!("`{}` has no story or no question", situation.name);
            return Err(fault(self.line, message, "write at least one `- ` line and one `? ` line"));
        }
        Ok(self.situation)
    }

    fn declared(&self, name: char) -> bool {
        self.situation.numbers.iter().any(|number| number.name == name)
    }

    fn known(&self, key: &str) -> bool {
        match key.split_once('.') {
            Some(("P" | "Q" | "R", form)) => matches!(form, "he" | "him" | "his" | "He" | "Him" | "His"),
            Some((thing, form)) => form == "one" && self.known(thing) && (thing == "t" || thing == "u"),
            None => match key {
                "P" | "Q" | "R" => true,
                "t" if !self.situation.things.is_empty() => true,
                "u" if !self.situation.other_things.is_empty() => true,
                _ => key.len() == 1 && key.chars().all(|name| self.declared(name)),
            },
        }
    }
}

fn undeclared(line: usize, name: char) -> ParseError {
    fault(line, format!("the number `{name}` is not declared"), "declare it in the `n:` line, above")
}

fn number(text: &str) -> Option<Number> {
    let (name, range) = text.split_once(' ')?;
    let (range, multiple) = range.split_once('*').unwrap_or((range, "1"));
    let (low, high) = range.split_once("..")?;
    let name = name.chars().next().filter(|first| name.len() == 1 && first.is_ascii_lowercase())?;
    let number = Number { name, low: low.parse().ok()?, high: high.parse().ok()?, multiple: multiple.parse().ok()? };
    let in_range = 1 <= number.low && number.low <= number.high && number.high <= 999 && 1 <= number.multiple;
    let one_fits = in_range && (number.high / number.multiple) * number.multiple >= number.low;
    one_fits.then_some(number)
}

fn things(line: usize, text: &str) -> Result<Vec<Thing>, ParseError> {
    let thing = |part: &str| {
        let (many, one) = part.trim().split_once('/')?;
        (!many.is_empty() && !one.is_empty()).then(|| Thing { many: many.to_owned(), one: one.to_owned() })
    };
    let message = |part: &str| format!("`{}` is no thing", part.trim());
    let hint = "plural and singular: `apples/apple, pears/pear`";
    text.split(',').map(|part| thing(part).ok_or_else(|| fault(line, message(part), hint))).collect()
}

fn rule(text: &str) -> Option<StepRule> {
    let at = text.find(['+', '-', '*', '/'])?;
    let op = Op::of(text[at..].chars().next()?)?;
    Some(StepRule { left: operand(text[..at].trim())?, op, right: operand(text[at + 1..].trim())? })
}

fn operand(text: &str) -> Option<Operand> {
    if let Some(index) = text.strip_prefix('$') {
        return index.parse::<usize>().ok()?.checked_sub(1).map(Operand::Result);
    }
    match text.chars().next()? {
        name if name.is_ascii_lowercase() && text.len() == 1 => Some(Operand::Number(name)),
        _ => text.parse().ok().filter(|value| *value > 0).map(Operand::Constant),
    }
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
