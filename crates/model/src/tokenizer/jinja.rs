//! Renders the chat templates of checkpoints, which are untrusted programs. The library `minijinja` parses them; they run
//! here, where every step and every byte is charged to a [`value::Budget`]. Its own engine counts steps only, but a text that
//! is doubled forty times takes few steps and a terabyte. Features that chat templates do not use are refused.

mod builtins;
mod operators;
mod text;
mod value;

use minijinja::machinery::{WhitespaceConfig, ast, parse};
use serde_json::Value as Json;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
pub(super) use value::Objection;
use value::{Budget, Listed, Outcome, Turn, Value, objection};

/// The longest template that is read, in bytes.
const MOST_SOURCE: usize = 64 << 10;
/// The longest text that a template may write, in bytes. It is encoded for every request.
const MOST_WRITTEN: usize = 1 << 20;
/// How deep expressions, statements and calls may be nested when they are run. [`super::template`] has a stack for it.
const MOST_NESTED: u32 = 400;

/// What a template is told.
pub(super) struct Variables<'a> {
    /// The messages: objects.
    pub(super) messages: &'a [Json],
    /// The tools, where there are any.
    pub(super) tools: Option<&'a Json>,
    pub(super) begin: &'a str,
    pub(super) end: &'a str,
}

/// Whether a template can be read.
///
/// # Errors
/// Why not.
pub(super) fn check(source: &str) -> Result<(), Objection> {
    read(source).map(drop)
}

/// The text that a template makes of these variables.
///
/// # Errors
/// What it objects to, or that it takes more than it may.
pub(super) fn render(source: &str, variables: &Variables<'_>) -> Result<String, Objection> {
    let template = read(source)?;
    let mut run =
        Run { budget: Budget::new(), frames: vec![Frame::new()], base: 0, outputs: vec![String::new()], nested: 0 };
    run.introduce(variables)?;
    run.statement(&template)?;
    Ok(run.outputs.pop().unwrap_or_default())
}

fn read(source: &str) -> Outcome<ast::Stmt<'_>> {
    if source.len() > MOST_SOURCE {
        return objection(format!("it has {} bytes; at most {MOST_SOURCE} are read", source.len()));
    }
    // As the `transformers` library sets up its own.
    let spaces = WhitespaceConfig { keep_trailing_newline: false, lstrip_blocks: true, trim_blocks: true };
    parse(source, "chat", Default::default(), spaces).map_err(|error| Objection(format!("{error:#}")))
}

type Frame<'a> = HashMap<&'a str, Value<'a>>;

/// Where a rendering stands.
struct Run<'a> {
    budget: Budget,
    /// Variables, innermost last; the first frame is the template's.
    frames: Vec<Frame<'a>>,
    /// The first frame of the macro that is running: it sees none of its caller's.
    base: usize,
    /// What was written; above the first, what is being captured.
    outputs: Vec<String>,
    nested: u32,
}

/// How a statement ended.
#[derive(Clone, Copy, PartialEq)]
enum Flow {
    Next,
    Continue,
    Break,
}

/// What a function is given.
struct Arguments<'a> {
    places: Vec<Value<'a>>,
    names: Vec<(&'a str, Value<'a>)>,
}

impl<'a> Run<'a> {
    fn introduce(&mut self, variables: &Variables<'_>) -> Outcome<()> {
        let mut messages = Vec::new();
        for message in variables.messages {
            messages.push(self.budget.given(message)?);
        }
        let messages = self.budget.list(messages)?;
        if let Some(tools) = variables.tools {
            let tools = self.budget.given(tools)?;
            self.set("tools", tools);
        }
        let (begin, end) = (self.budget.text(variables.begin)?, self.budget.text(variables.end)?);
        for (name, value) in [
            ("messages", messages),
            ("add_generation_prompt", Value::Bool(true)),
            ("bos_token", begin),
            ("eos_token", end),
        ] {
            self.set(name, value);
        }
        Ok(())
    }

    fn set(&mut self, name: &'a str, value: Value<'a>) {
        if let Some(frame) = self.frames.last_mut() {
            frame.insert(name, value);
        }
    }

    fn look_up(&mut self, name: &str) -> Outcome<Value<'a>> {
        let (template, inner) = self.frames.split_at(1.min(self.frames.len()));
        // The frames of a macro begin after the template's.
        let inner = inner.get(self.base.saturating_sub(1)..).unwrap_or_default();
        self.budget.work(inner.len() as u64)?;
        let found = inner.iter().rev().chain(template).find_map(|frame| frame.get(name)).cloned();
        Ok(found.unwrap_or_else(|| builtins::function(name).map_or(Value::Undefined, Value::Function)))
    }

    /// Runs something one level deeper.
    fn deeper<T>(&mut self, run: impl FnOnce(&mut Self) -> Outcome<T>) -> Outcome<T> {
        self.budget.work(1)?;
        if self.nested >= MOST_NESTED {
            return objection(format!("it is nested more than {MOST_NESTED} deep"));
        }
        self.nested += 1;
        let done = run(self);
        self.nested -= 1;
        done
    }

    fn write(&mut self, text: &str) -> Outcome<()> {
        self.budget.memory(text.len() as u64)?;
        let is_captured = self.outputs.len() > 1;
        if let Some(output) = self.outputs.last_mut() {
            if !is_captured && output.len() + text.len() > MOST_WRITTEN {
                return objection(format!("it writes more than {MOST_WRITTEN} bytes"));
            }
            output.push_str(text);
        }
        Ok(())
    }

    /// What some statements write, as a value.
    fn capture(&mut self, body: &'a [ast::Stmt<'a>]) -> Outcome<Value<'a>> {
        self.outputs.push(String::new());
        let done = self.statements(body);
        let text = self.outputs.pop().unwrap_or_default();
        done?;
        self.budget.text(&text)
    }

    /// Runs something with variables of its own.
    fn framed<T>(&mut self, run: impl FnOnce(&mut Self) -> Outcome<T>) -> Outcome<T> {
        self.budget.memory(256)?;
        self.frames.push(Frame::new());
        let done = run(self);
        self.frames.pop();
        done
    }

    fn statements(&mut self, body: &'a [ast::Stmt<'a>]) -> Outcome<Flow> {
        for statement in body {
            match self.statement(statement)? {
                Flow::Next => {}
                other => return Ok(other),
            }
        }
        Ok(Flow::Next)
    }

    fn statement(&mut self, statement: &'a ast::Stmt<'a>) -> Outcome<Flow> {
        self.deeper(|run| match statement {
            ast::Stmt::Template(it) => run.statements(&it.children),
            ast::Stmt::EmitRaw(it) => run.write(it.raw).map(|()| Flow::Next),
            ast::Stmt::EmitExpr(it) => {
                let value = run.value(&it.expr)?;
                let text = run.budget.shown(&value)?;
                run.write(&text).map(|()| Flow::Next)
            }
            ast::Stmt::IfCond(it) => {
                let body = if run.value(&it.expr)?.is_true() { &it.true_body } else { &it.false_body };
                run.statements(body)
            }
            ast::Stmt::ForLoop(it) => run.for_loop(it),
            ast::Stmt::Set(it) => {
                let value = run.value(&it.expr)?;
                run.bind(&it.target, value).map(|()| Flow::Next)
            }
            ast::Stmt::SetBlock(it) => {
                let mut value = run.capture(&it.body)?;
                if let Some(filter) = &it.filter {
                    value = run.filtered(filter, value)?;
                }
                run.bind(&it.target, value).map(|()| Flow::Next)
            }
            ast::Stmt::FilterBlock(it) => {
                let value = run.capture(&it.body)?;
                let value = run.filtered(&it.filter, value)?;
                let text = run.budget.shown(&value)?;
                run.write(&text).map(|()| Flow::Next)
            }
            ast::Stmt::WithBlock(it) => run.framed(|run| {
                for (target, expression) in &it.assignments {
                    let value = run.value(expression)?;
                    run.bind(target, value)?;
                }
                run.statements(&it.body)
            }),
            ast::Stmt::AutoEscape(it) => run.statements(&it.body),
            ast::Stmt::Macro(it) => {
                run.set(it.name, Value::Macro(it));
                Ok(Flow::Next)
            }
            ast::Stmt::Do(it) => run.call(&it.call).map(|_| Flow::Next),
            ast::Stmt::Continue(_) => Ok(Flow::Continue),
            ast::Stmt::Break(_) => Ok(Flow::Break),
            #[allow(unreachable_patterns)] // Other features of the library know more.
            _ => objection("it uses a statement that chat templates do without"),
        })
    }

    fn for_loop(&mut self, it: &'a ast::ForLoop<'a>) -> Outcome<Flow> {
        let items = self.value(&it.iter)?;
        let mut items = self.items(&items)?;
        if let Some(filter) = &it.filter_expr {
            let mut kept = Vec::new();
            for item in &items.items {
                let is_kept = self.framed(|run| {
                    run.bind(&it.target, item.clone())?;
                    Ok(run.value(filter)?.is_true())
                })?;
                if is_kept {
                    kept.push(item.clone());
                }
            }
            items = self.listed(kept)?;
        }
        if items.items.is_empty() {
            return self.statements(&it.else_body);
        }
        for (index, item) in items.items.iter().enumerate() {
            let flow = self.framed(|run| {
                run.bind(&it.target, item.clone())?;
                run.set("loop", Value::Loop(Rc::new(Turn { index, items: items.clone() })));
                run.statements(&it.body)
            })?;
            if flow == Flow::Break {
                break;
            }
        }
        Ok(Flow::Next)
    }

    fn listed(&mut self, items: Vec<Value<'a>>) -> Outcome<Rc<Listed<'a>>> {
        match self.budget.list(items)? {
            Value::List(list) => Ok(list),
            other => objection(format!("{} is no list", other.kind())),
        }
    }

    /// What a loop goes through.
    fn items(&mut self, value: &Value<'a>) -> Outcome<Rc<Listed<'a>>> {
        let items = match value {
            Value::List(list) => return Ok(list.clone()),
            Value::Undefined => Vec::new(),
            Value::Map(map) => map.entries.iter().map(|(key, _)| Value::Text(key.clone())).collect(),
            Value::Text(text) => {
                let mut characters = Vec::new();
                for character in text.chars() {
                    characters.push(self.budget.text(character.encode_utf8(&mut [0; 4]))?);
                }
                characters
            }
            other => return objection(format!("{} cannot be gone through", other.kind())),
        };
        self.listed(items)
    }

    fn bind(&mut self, target: &'a ast::Expr<'a>, value: Value<'a>) -> Outcome<()> {
        match target {
            ast::Expr::Var(it) => {
                self.set(it.id, value);
                Ok(())
            }
            ast::Expr::List(it) => {
                let items = self.items(&value)?;
                if items.items.len() != it.items.len() {
                    return objection(format!("{} values for {} names", items.items.len(), it.items.len()));
                }
                // As deep as the template is, which its reader bounds.
                it.items.iter().zip(&items.items).try_for_each(|(target, item)| self.bind(target, item.clone()))
            }
            ast::Expr::GetAttr(it) => match self.value(&it.expr)? {
                Value::Namespace(fields) => {
                    value.can_be_field()?;
                    fields.borrow_mut().insert(it.name, value);
                    Ok(())
                }
                other => objection(format!("only fields of a namespace can be set, not of {}", other.kind())),
            },
            _ => objection("it sets something that is no variable"),
        }
    }

    fn value(&mut self, expression: &'a ast::Expr<'a>) -> Outcome<Value<'a>> {
        self.deeper(|run| match expression {
            ast::Expr::Var(it) => run.look_up(it.id),
            ast::Expr::Const(it) => run.constant(&it.value),
            ast::Expr::Slice(it) => {
                let subject = run.value(&it.expr)?;
                let mut bound = |part: &'a Option<ast::Expr<'a>>| part.as_ref().map(|it| run.value(it)).transpose();
                let bounds = [bound(&it.start)?, bound(&it.stop)?, bound(&it.step)?];
                run.slice(&subject, bounds)
            }
            ast::Expr::UnaryOp(it) => {
                let value = run.value(&it.expr)?;
                match it.op {
                    ast::UnaryOpKind::Not => Ok(Value::Bool(!value.is_true())),
                    ast::UnaryOpKind::Neg => run.arithmetic(ast::BinOpKind::Sub, &Value::Int(0), &value),
                }
            }
            ast::Expr::BinOp(it) => run.binary(it),
            ast::Expr::Compare(it) => {
                let mut left = run.value(&it.expr)?;
                for step in &it.ops {
                    let right = run.value(&step.expr)?;
                    if !run.compare(step.op, &left, &right)? {
                        return Ok(Value::Bool(false));
                    }
                    left = right;
                }
                Ok(Value::Bool(true))
            }
            ast::Expr::IfExpr(it) => match (run.value(&it.test_expr)?.is_true(), &it.false_expr) {
                (true, _) => run.value(&it.true_expr),
                (false, Some(other)) => run.value(other),
                (false, None) => Ok(Value::Undefined),
            },
            ast::Expr::Filter(it) => {
                let Some(subject) = &it.expr else { return objection("a filter has nothing to filter") };
                let subject = run.value(subject)?;
                let arguments = run.arguments(&it.args)?;
                run.filter(it.name, &subject, &arguments)
            }
            ast::Expr::Test(it) => {
                let subject = run.value(&it.expr)?;
                let arguments = run.arguments(&it.args)?;
                run.test(it.name, &subject, &arguments).map(Value::Bool)
            }
            ast::Expr::GetAttr(it) => {
                let subject = run.value(&it.expr)?;
                run.field(&subject, it.name)
            }
            ast::Expr::GetItem(it) => {
                let subject = run.value(&it.expr)?;
                let key = run.value(&it.subscript_expr)?;
                run.item(&subject, &key)
            }
            ast::Expr::Call(it) => run.call(it),
            ast::Expr::List(it) => {
                let mut items = Vec::new();
                for item in &it.items {
                    items.push(run.value(item)?);
                }
                run.budget.list(items)
            }
            ast::Expr::Map(it) => {
                let mut entries = Vec::new();
                for (key, value) in it.keys.iter().zip(&it.values) {
                    let (key, value) = (run.value(key)?, run.value(value)?);
                    entries.push((run.budget.shown(&key)?, value));
                }
                run.budget.map(entries)
            }
        })
    }

    fn constant(&mut self, value: &minijinja::Value) -> Outcome<Value<'a>> {
        use minijinja::value::ValueKind;
        match value.kind() {
            ValueKind::Undefined => Ok(Value::Undefined),
            ValueKind::None => Ok(Value::None),
            ValueKind::Bool => Ok(Value::Bool(value.is_true())),
            ValueKind::Number => match (value.as_i64(), f64::try_from(value.clone())) {
                (Some(number), _) => Ok(Value::Int(number)),
                (None, Ok(number)) => Ok(Value::Float(number)),
                (None, Err(_)) => objection("it has a number that is too large"),
            },
            ValueKind::String => self.budget.text(value.as_str().unwrap_or_default()),
            _ => objection("it has a constant that chat templates do without"),
        }
    }

    /// A chain of filters applied to a value that stands before the first of them.
    fn filtered(&mut self, chain: &'a ast::Expr<'a>, value: Value<'a>) -> Outcome<Value<'a>> {
        self.deeper(|run| {
            let ast::Expr::Filter(it) = chain else { return objection("a filter was expected") };
            let subject = match &it.expr {
                Some(inner) => run.filtered(inner, value)?,
                None => value,
            };
            let arguments = run.arguments(&it.args)?;
            run.filter(it.name, &subject, &arguments)
        })
    }

    fn arguments(&mut self, given: &'a [ast::CallArg<'a>]) -> Outcome<Arguments<'a>> {
        let mut arguments = Arguments { places: Vec::new(), names: Vec::new() };
        for one in given {
            match one {
                ast::CallArg::Pos(it) => arguments.places.push(self.value(it)?),
                ast::CallArg::Kwarg(name, it) => arguments.names.push((name, self.value(it)?)),
                _ => return objection("it unpacks arguments, which chat templates do without"),
            }
        }
        Ok(arguments)
    }

    fn call(&mut self, it: &'a ast::Call<'a>) -> Outcome<Value<'a>> {
        if let ast::Expr::GetAttr(method) = &it.expr {
            let subject = self.value(&method.expr)?;
            let arguments = self.arguments(&it.args)?;
            return self.method(&subject, method.name, &arguments);
        }
        let function = self.value(&it.expr)?;
        let arguments = self.arguments(&it.args)?;
        match function {
            Value::Macro(it) => self.call_macro(it, arguments),
            Value::Function(name) => self.call_function(name, arguments),
            Value::Undefined => objection("it calls a function that is not known here"),
            other => objection(format!("{} cannot be called", other.kind())),
        }
    }

    fn call_macro(&mut self, it: &'a ast::Macro<'a>, arguments: Arguments<'a>) -> Outcome<Value<'a>> {
        self.deeper(|run| {
            let base = std::mem::replace(&mut run.base, run.frames.len());
            let done = run.framed(|run| {
                let without_default = it.args.len().saturating_sub(it.defaults.len());
                if arguments.places.len() > it.args.len() {
                    return objection(format!(
                        "{} arguments for {}, which takes {}",
                        arguments.places.len(),
                        it.name,
                        it.args.len()
                    ));
                }
                for (place, target) in it.args.iter().enumerate() {
                    let ast::Expr::Var(name) = target else { return objection("a parameter is no name") };
                    let named = arguments.names.iter().find(|(given, _)| *given == name.id).map(|(_, value)| value);
                    let value = match (arguments.places.get(place).or(named), place.checked_sub(without_default)) {
                        (Some(given), _) => given.clone(),
                        (None, Some(default)) => {
                            it.defaults.get(default).map_or(Ok(Value::Undefined), |it| run.value(it))?
                        }
                        (None, None) => Value::Undefined,
                    };
                    run.set(name.id, value);
                }
                run.capture(&it.body)
            });
            run.base = base;
            done
        })
    }

    /// A new namespace.
    fn namespace(&mut self, arguments: Arguments<'a>) -> Outcome<Value<'a>> {
        arguments.names.iter().try_for_each(|(_, value)| value.can_be_field())?;
        self.budget.memory(256)?;
        Ok(Value::Namespace(Rc::new(RefCell::new(arguments.names.into_iter().collect()))))
    }
}
