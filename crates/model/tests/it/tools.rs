//! Tools in the form of a model's own template, and calls that are held to a grammar.

use lemon_model::grammar::NextTokens;
use lemon_model::tokenizer::{CallForm, ChatCall, ChatTool, Message, Role, Turn};
use lemon_model::{PolicyError, Tokenizer};
use lemon_num::Random;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::LazyLock;

/// Calls between marks, as Qwen's models write them.
const MARKED: &str = r#"
{%- if tools %}{{ '<|turn|>system\n' }}{% for tool in tools %}{{ (tool | tojson) + '\n' }}{% endfor %}{{ '<|end|>' }}{% endif %}
{%- for m in messages %}
    {%- if m.role == 'tool' %}{{ '<|turn|>user\n<result>' + m.content + '</result><|end|>' }}
    {%- else %}
        {{- '<|turn|>' + m.role }}{% if m.content %}{{ '\n' + m.content }}{% endif %}
        {%- for call in m.tool_calls or [] %}
            {{- '\n<call>\n{"name": "' + call.function.name + '", "arguments": ' }}
            {{- (call.function.arguments | tojson) + '}\n</call>' }}
        {%- endfor %}
        {{- '<|end|>' }}
    {%- endif %}
{%- endfor %}
{{- '<|turn|>assistant\n' }}"#;

/// Bare JSON with parameters, as Llama's models write it.
const BARE: &str = r#"
{%- for m in messages %}
    {%- if m.role == 'user' and tools is defined %}
        {{- '<|turn|>user\n' }}{% for t in tools %}{{ (t | tojson(indent=2)) + '\n' }}{% endfor %}{{ m.content + '<|end|>' }}
    {%- elif 'tool_calls' in m %}
        {%- if m.tool_calls | length != 1 %}{{ raise_exception('one call') }}{% endif %}
        {%- set call = m.tool_calls[0].function %}
        {{- '<|turn|>assistant\n{"name": "' + call.name + '", "parameters": ' + (call.arguments | tojson) + '}<|end|>' }}
    {%- elif m.role == 'tool' %}{{ '<|turn|>tool\n' + (m.content | tojson) + '<|end|>' }}
    {%- else %}{{ '<|turn|>' + m.role + '\n' + m.content + '<|end|>' }}
    {%- endif %}
{%- endfor %}
{{- '<|turn|>assistant\n' }}"#;

static PLAIN: LazyLock<Tokenizer> =
    LazyLock::new(|| Tokenizer::train(std::iter::empty(), 259, &["<|end|>", "<|turn|>", "<|other|>"]).unwrap());

fn with(template: &str) -> Tokenizer {
    PLAIN.with_template(template).unwrap()
}

fn said(role: Role, content: &str) -> Turn {
    Turn::Said(Message { role, content: content.to_owned() })
}

fn tool(name: &str, parameters: Value) -> ChatTool {
    ChatTool { name: name.to_owned(), description: format!("does {name}"), parameters }
}

fn conversation(content: &str, arguments: Value) -> Vec<Turn> {
    let call = ChatCall { name: "add".to_owned(), arguments };
    vec![
        said(Role::User, "1 + 2?"),
        Turn::Called { content: content.to_owned(), calls: vec![call] },
        Turn::Result { tool: "add".to_owned(), content: "3".to_owned() },
    ]
}

#[test]
fn the_template_shows_how_calls_are_written() {
    let check = |template: &str, expected: Option<[&str; 3]>| {
        let found = with(template).call_form().cloned();
        let form = expected.map(|[mark, end, arguments]| CallForm {
            mark: mark.to_owned(),
            end: end.to_owned(),
            arguments: arguments.to_owned(),
        });
        assert_eq!(found, form, "{template}");
    };
    check(MARKED, Some(["<call>", "</call>", "arguments"]));
    check(BARE, Some(["", "", "parameters"]));
    let silent = "{% for m in messages %}{{ m.role }}: {{ m.content }}<|end|>{% endfor %}";
    check(silent, None);
    // A word about tools is not enough: calls, and their results, have to be written.
    check(&format!("{silent}{{% for t in tools or [] %}}{{{{ t | tojson }}}}{{% endfor %}}"), None);
    check(&MARKED.replace("<result>' + m.content + '", "<result>"), None);
    check(&MARKED.replace("\"name\": ", "\"tool\": "), None);
    check("{% if tools %}{{ raise_exception('no tools') }}{% endif %}", None);
    assert_eq!(PLAIN.call_form(), None);
    let error = PLAIN.prompt_with_tools(&[], &[]).unwrap_err();
    assert!(matches!(error, PolicyError::Request(_)), "{error}");
}

#[test]
fn a_conversation_with_tools_is_written_by_the_template() {
    let tools = [tool("add", json!({"type": "object", "properties": {"a": {"type": "integer"}}}))];
    let check = |template: &str, content: &str, expected: &str| {
        let tokenizer = with(template);
        let tokens = tokenizer.prompt_with_tools(&conversation(content, json!({"a": 1})), &tools).unwrap();
        assert_eq!(tokenizer.decode(&tokens), expected);
    };
    let listed = "{\"type\": \"function\", \"function\": {\"name\": \"add\", \"description\": \"does add\", \
        \"parameters\": {\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}}}}}";
    let call = "<call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</call>";
    let before = format!("system\n{listed}\nuser\n1 + 2?assistant\n");
    let after = "user\n<result>3</result>assistant\n";
    check(MARKED, "", &format!("{before}{call}{after}"));
    check(MARKED, "I add.", &format!("{before}I add.\n{call}{after}"));
    let tokens = with(BARE).prompt_with_tools(&conversation("", json!({"a": 1})), &tools).unwrap();
    let text = PLAIN.decode(&tokens);
    assert!(
        text.ends_with("assistant\n{\"name\": \"add\", \"parameters\": {\"a\": 1}}tool\n\"3\"assistant\n"),
        "{text}"
    );
    let [user, called, result] = &conversation("", json!({}))[..] else { panic!() };
    let Turn::Called { content, calls } = called else { panic!() };
    let twice = Turn::Called { content: content.clone(), calls: [calls.clone(), calls.clone()].concat() };
    let error = with(BARE).prompt_with_tools(&[user.clone(), twice, result.clone()], &tools).unwrap_err().to_string();
    assert!(error.contains("one call"), "{error}");
}

proptest! {
    /// Whatever tools, calls and results say, there are as many special tokens as the template writes.
    #[test]
    fn nothing_poses_as_a_turn(
        text in "(<\\|end\\|>|<\\|turn\\|>|<\\|other\\|>|\u{e0f0}[0-9]\u{e0f1}|\"|\\\\|[a-z{}%]){0,6}",
        at in 0usize..6,
    ) {
        let mut parts = vec![String::new(); 6];
        parts[at] = text.clone();
        let [name, about, key, value, argument, result] = &parts[..] else { unreachable!() };
        let mut tools = [tool("add", json!({"type": "object", "properties": {(key): {"const": value}}}))];
        tools[0].name.push_str(name);
        tools[0].description.push_str(about);
        let mut turns = conversation(&text, json!({ "code": argument, (key): 1 }));
        if let Turn::Result { content, tool } = &mut turns[2] {
            content.push_str(result);
            tool.push_str(name);
        }
        for template in [MARKED, BARE] {
            let tokenizer = with(template);
            let tokens = tokenizer.prompt_with_tools(&turns, &tools).unwrap();
            let count = |word: &str| {
                let [token] = tokenizer.encode(word)[..] else { panic!() };
                tokens.iter().filter(|it| **it == token).count()
            };
            let turns = if template == MARKED { 5 } else { 4 };
            prop_assert_eq!((count("<|turn|>"), count("<|end|>"), count("<|other|>")), (turns, turns - 1, 0));
            let shown = tokenizer.decode(&tokens);
            if at == 4 {
                prop_assert!(shown.contains(&Value::from(argument.as_str()).to_string()), "{}", shown);
            }
        }
    }
}

/// A text that a grammar allows, drawn at random; long texts are ended as soon as the grammar lets them.
fn draw(grammar: &lemon_model::Grammar, seed: u64) -> String {
    let (mut walk, mut random, mut tokens) = (grammar.walk(), Random::new(seed), Vec::new());
    loop {
        match walk.next().unwrap() {
            NextTokens::Forced(forced) => tokens.extend(forced),
            NextTokens::End => return grammar.tokenizer().decode(&tokens),
            NextTokens::Choose(mask) => {
                let allowed: Vec<u32> = mask.tokens().collect();
                let of = |byte: u8| allowed.iter().copied().find(|token| grammar.tokenizer().bytes(*token) == [byte]);
                // In a text everything is allowed: it is ended first.
                let ready = tokens.len() > 60;
                let last = tokens.last().map(|token| grammar.tokenizer().bytes(*token).to_vec());
                let closing: &[u8] = if last.as_deref() == Some(b"\"") { b"}]," } else { b"\"}]," };
                let token = closing.iter().copied().find_map(of).filter(|_| ready);
                let token = token.unwrap_or_else(|| allowed[random.below(allowed.len())]);
                walk.take(token).unwrap();
                tokens.push(token);
            }
        }
        assert!(tokens.len() < 2_000, "{}", grammar.tokenizer().decode(&tokens));
    }
}

#[test]
fn a_call_is_valid_json_for_its_schema() {
    let add = json!({"type": "object", "required": ["a", "b"], "additionalProperties": false,
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}});
    let pick = json!({"type": "object", "required": ["unit", "on"],
        "properties": {"unit": {"enum": ["km", "mile"]}, "on": {"type": "boolean"}}, "additionalProperties": false});
    let say = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
    // No grammar is made of this one: any object is taken, and the tool checks it.
    let odd = json!({"type": "object", "properties": {"x": {"$ref": "https://example.invalid/none"}}});
    let tools = [tool("add", add), tool("docs.pick", pick), tool("say", say), tool("odd", odd)];
    let valid = |call: &str| -> String {
        let call: Value = serde_json::from_str(call).unwrap_or_else(|error| panic!("{error}: {call}"));
        let (name, arguments) = (call["name"].as_str().unwrap(), &call["arguments"]);
        assert_eq!(call.as_object().unwrap().len(), 2);
        let fits = match name {
            "add" => arguments["a"].is_i64() && arguments["b"].is_i64() || arguments["a"].is_number(),
            "docs.pick" => ["km", "mile"].map(Value::from).contains(&arguments["unit"]) && arguments["on"].is_boolean(),
            "say" => arguments["text"].is_string(),
            _ => name == "odd" && arguments.is_object(),
        };
        assert!(fits, "{call}");
        name.to_owned()
    };
    let tokenizer = with(MARKED);
    let constraints = tokenizer.call_form().unwrap().constraints(&tools, &tokenizer).unwrap();
    let [marked, single @ ..] = &constraints[..] else { panic!() };
    assert_eq!(marked.after, "<call>");
    let names: std::collections::BTreeSet<String> =
        (0..60).map(|seed| valid(draw(&marked.grammar, seed).trim_start())).collect();
    assert_eq!(names.len(), 4, "{names:?}");
    // Each by itself, with spaces and without, on one line and on several.
    assert_eq!(single.len(), 16);
    for constraint in single {
        for seed in 0..20 {
            valid(&format!("{}{}", constraint.after, draw(&constraint.grammar, seed)));
        }
    }
    let bare = with(BARE).call_form().unwrap().constraints(&tools[..1], &tokenizer).unwrap();
    let after: Vec<&str> = bare.iter().map(|it| it.after.as_str()).collect();
    let expected = [
        r#"{"name": "add", "parameters": "#,
        r#"{"name":"add","parameters":"#,
        "{\n  \"name\": \"add\",\n  \"parameters\": ",
        "{\n    \"name\": \"add\",\n    \"parameters\": ",
    ];
    assert_eq!(after, expected);
}

#[test]
fn a_walk_begins_after_a_text_that_fits() {
    let tokenizer = with(MARKED);
    let tools = [tool("say", json!({"type": "object"}))];
    let constraints = tokenizer.call_form().unwrap().constraints(&tools, &tokenizer).unwrap();
    let walk = |text: &str| constraints[0].grammar.walk_after(0, text.as_bytes());
    for fits in ["", "\n", "\n{\"na", "{\"name\": \"say\", \"arguments\": {"] {
        assert!(walk(fits).is_some_and(|mut walk| walk.next().is_ok()), "{fits:?}");
    }
    for other in ["x", "\n[", "\n{\"name\": \"shout"] {
        assert!(walk(other).is_none(), "{other:?}");
    }
}
