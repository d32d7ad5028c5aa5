//! Chat templates and tokenizers of checkpoints that mean harm: each ends with an error, within bounds.

use crate::vocabularies::{BYTES, fallback};
use lemon_model::Tokenizer;
use lemon_model::tokenizer::{Message, Role};
use serde_json::{Value, json};
use std::fs;
use tempfile::TempDir;

fn message(role: Role, content: &str) -> Message {
    Message { role, content: content.to_owned() }
}

/// What a template says of a conversation.
fn prompt(template: &str) -> Result<String, String> {
    let messages = [message(Role::System, "S"), message(Role::User, "U")];
    let tokenizer = BYTES.with_template(template).map_err(|error| error.to_string())?;
    let tokens = tokenizer.prompt(&messages).map_err(|error| error.to_string())?;
    Ok(tokenizer.decode(&tokens))
}

#[track_caller]
fn fails(template: &str, words: &str) {
    let shown: String = template.chars().take(100).collect();
    match prompt(template) {
        Ok(text) => panic!("{shown}: {} bytes", text.len()),
        Err(fact) => assert!(fact.contains(words), "{shown}: {fact}"),
    }
}

#[test]
fn templates_that_do_not_end() {
    // Either runs out first: steps, or the memory that steps take.
    let endless = ": more than ";
    let nested = |inner: &str| {
        let open: String = (0..4).map(|at| format!("{{% for a{at} in range(90000) %}}")).collect();
        format!("{open}{inner}{}", "{% endfor %}".repeat(4))
    };
    fails(&nested(""), endless);
    fails(&nested("{% set x = 1 %}"), endless);
    fails(&nested("{% if false %}a{% endif %}"), endless);
    // Little is done often with something long.
    let long = "{% set x = 'a' * 1000000 %}{% for i in range(90000) %}";
    for work in ["{{ x | length }}", "{{ x == x }}", "{{ 'b' in x }}", "{{ x.find('b') }}", "{{ x[5] }}", "{{ x < x }}"]
    {
        assert!(
            prompt(&format!("{long}{{% if {} %}}{{% endif %}}{{% endfor %}}", work.trim_matches(['{', '}', ' '])))
                .is_err(),
            "{work}"
        );
    }
    // Shared parts are gone through again and again.
    let shared = format!("{{% set x = [1, 2] %}}{}{{{{ x == x }}}}", "{% set x = [x, x] %}".repeat(30));
    fails(&shared, endless);
}

#[test]
fn templates_that_recurse() {
    let deep = "nested more than 400 deep";
    fails("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", deep);
    fails(
        "{% macro a(x) %}{{ b(x ~ x) }}{% endmacro %}{% macro b(x) %}{{ a(x) }}{% endmacro %}{{ a('xy') }}",
        ": more than ",
    );
    fails("{% macro m(f) %}{{ f(f) }}{% endmacro %}{{ m(m) }}", deep);
    // As deep as it is written.
    fails(&format!("{{{{ {}1{} }}}}", "(".repeat(20_000), ")".repeat(20_000)), "");
    fails(&format!("{{{{ {}1 }}}}", "not ".repeat(10_000)), "");
    fails(&format!("{{{{ {}1 }}}}", "-".repeat(50_000)), "");
    fails(&format!("{{{{ 1{} }}}}", "+1".repeat(30_000)), deep);
    fails(&format!("{{{{ x{} }}}}", ".a".repeat(30_000)), "");
    fails(&format!("{{{{ 'x'{} }}}}", "|trim".repeat(10_000)), deep);
    fails(&format!("{}{}", "{% if true %}".repeat(2_000), "{% endif %}".repeat(2_000)), "");
    fails(&"{% for x in messages %}".repeat(2_500), "");
    fails(&format!("{{% set x = {}{} %}}", "[".repeat(10_000), "]".repeat(10_000)), "");
    // As deep as it is made.
    fails(
        "{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}{% endfor %}",
        "more than 32 deep",
    );
    fails("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}", "a namespace cannot be part of another value");
    fails("{% set ns = namespace() %}{% set x = [ns] %}{{ x }}", "a namespace cannot be part of another value");
}

#[test]
fn templates_that_take_memory() {
    let much = "more than 67108864 bytes";
    fails(&format!("{{% set x = 'xxxxxxxxxx' %}}{}", "{% set x = x ~ x %}".repeat(60)), much);
    fails(&format!("{{% set x = 'xxxxxxxxxx' %}}{}", "{% set x = x + x %}".repeat(60)), much);
    fails(
        "{% set ns = namespace(x='ab') %}{% for i in range(90) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
        much,
    );
    fails("{{ 'x' * 1000000000000 }}", much);
    fails("{{ 'abcdefgh' * 9223372036854775807 }}", much);
    fails("{{ (('x' * 10000000) * 10000000) }}", much);
    fails("{% for i in range(10 ** 9) %}x{% endfor %}", "a range of 1000000000 numbers");
    fails("{% for i in range(-9223372036854775807, 9223372036854775807) %}x{% endfor %}", "a range of");
    fails("{% for i in range(99999) %}{{ 'y' * 10000 }}{% endfor %}", "it writes more than 1048576 bytes");
    fails(&format!("{{% for i in range(99999) %}}{}{{% endfor %}}", "z".repeat(50_000)), "it writes more than");
    fails("{% set x = 'a' * 1000000 %}{{ x.replace('', x) }}", much);
    fails("{% set x = 'a' * 1000000 %}{{ x | replace('a', x) }}", much);
    fails("{% set x = 'a' * 1000000 %}{{ x | list | join(x) }}", much);
    fails("{% set x = 'a' * 9000000 %}{{ x | upper | upper | upper | title | reverse }}", ": more than ");
    fails(&format!("{{% set x = ['abc'] %}}{}{{{{ x }}}}", "{% set x = x + x %}".repeat(40)), ": more than ");
    fails(&format!("{{% set x = ['abc'] %}}{}{{{{ x }}}}", "{% set x = [x, x] %}".repeat(31)), ": more than ");
    fails(
        &format!("{{% set x = ['abc'] %}}{}{{{{ x | tojson(indent=9999999) }}}}", "{% set x = [x, x] %}".repeat(31)),
        ": more than ",
    );
    fails("{% set x %}{% for i in range(99999) %}{{ 'y' * 10000 }}{% endfor %}{% endset %}", ": more than ");
    fails(&"x".repeat(70_000), "at most 65536 are read");
}

#[test]
fn templates_that_are_odd() {
    for odd in [
        "{% include 'x' %}",
        "{% extends 'x' %}",
        "{{ open('/etc/passwd') }}",
        "{{ ''.__class__ }}{{ ''.__class__.__mro__ }}",
        "{{ messages | nothing }}",
        "{{ 1 is nothing }}",
        "{{ 9223372036854775807 + 1 }}",
        "{{ 1 // 0 }}{{ 1 % 0 }}",
        "{{ -9223372036854775807 - 1 // -1 }}{{ (-9223372036854775807 - 1) // -1 }}",
        "{{ 2 ** 64 }}",
        "{{ undefined_thing.x }}",
        "{{ messages[::0] }}",
        "{% set messages.x = 1 %}",
        "{% for a, b in messages %}{% for c, d, e in ['ab'] %}{% endfor %}{% endfor %}",
        "{{ range('a') }}",
        "{{ {}['a']['b'] }}",
        "{% break %}{{",
        "\u{0}{{ 1",
    ] {
        fails(odd, "");
    }
    // No panic, whatever comes of it.
    for odd in [
        "{{ messages[9223372036854775807] }}{{ 'abc'[-9223372036854775807:] }}{{ 'äöü'[::-9223372036854775807] }}",
        "{{ messages[5:2:-1] }}{{ 'abc'[:-9:-1] }}{{ 'ä'[0] }}{{ [][0] }}{{ ''[0] }}",
        "{{ 1.5e308 * 10 | int }}",
        "{{ 'x' * -1 }}",
        "{{ '%d' | strftime_now }}",
        "{{ loop }}",
        "{% for x in messages %}{{ loop.cycle() }}{% endfor %}",
    ] {
        let _ = prompt(odd);
    }
}

/// Templates as published, shortened where conversations of ours do not lead.
#[test]
fn templates_of_real_models() {
    let qwen2 = "{%- if tools %}\n    {{- '<|im_start|>system\\n' }}\n{%- else %}\n    {%- if messages[0]['role'] == 'system' %}\n        \
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}\n    {%- else %}\n        {{- 'none' }}\n    {%- endif %}\n\
        {%- endif %}\n{%- for message in messages %}\n    {%- if (message.role == \"user\") or (message.role == \"system\" and not loop.first) \
        or (message.role == \"assistant\" and not message.tool_calls) %}\n        \
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}\n    \
        {%- elif message.role == \"tool\" %}\n        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != \"tool\") %}\n            \
        {{- '<|im_start|>user' }}\n        {%- endif %}\n    {%- endif %}\n{%- endfor %}\n{%- if add_generation_prompt %}\n    \
        {{- '<|im_start|>assistant\\n' }}\n{%- endif %}\n";
    let expected = "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(prompt(qwen2).unwrap(), expected);
    let qwen3 = "{%- if messages[0].role == 'system' %}\n    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}\n{%- endif %}\n\
        {%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}\n{%- for message in messages[::-1] %}\n    \
        {%- set index = (messages|length - 1) - loop.index0 %}\n    {%- if ns.multi_step_tool and message.role == \"user\" and message.content is string \
        and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}\n        \
        {%- set ns.multi_step_tool = false %}\n        {%- set ns.last_query_index = index %}\n    {%- endif %}\n{%- endfor %}\n\
        {%- for message in messages %}\n    {%- if message.content is string %}\n        {%- set content = message.content %}\n    {%- else %}\n        \
        {%- set content = '' %}\n    {%- endif %}\n    {%- if (message.role == \"user\") or (message.role == \"system\" and not loop.first) %}\n        \
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}\n    {%- elif message.role == \"assistant\" %}\n        \
        {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}\n        \
        {%- if loop.index0 > ns.last_query_index %}\n            {{- reasoning_content }}\n        {%- endif %}\n    {%- endif %}\n{%- endfor %}\n\
        {%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n    \
        {%- if enable_thinking is defined and enable_thinking is false %}\n        {{- '<think>\\n\\n</think>\\n\\n' }}\n    {%- endif %}\n{%- endif %}";
    assert_eq!(prompt(qwen3).unwrap(), expected);
    let llama = "{{- bos_token }}\n{%- if not date_string is defined %}\n    {%- if strftime_now is defined %}\n        \
        {%- set date_string = strftime_now(\"%d %b %Y\") %}\n    {%- else %}\n        {%- set date_string = \"26 Jul 2024\" %}\n    {%- endif %}\n\
        {%- endif %}\n{%- if not tools is defined %}\n    {%- set tools = none %}\n{%- endif %}\n{%- if messages[0]['role'] == 'system' %}\n    \
        {%- set system_message = messages[0]['content']|trim %}\n    {%- set messages = messages[1:] %}\n{%- else %}\n    \
        {%- set system_message = \"\" %}\n{%- endif %}\n{{- \"<|start_header_id|>system<|end_header_id|>\\n\\n\" }}\n{%- if tools is not none %}\n    \
        {{- \"Environment: ipython\\n\" }}\n{%- endif %}\n{{- \"Today Date: \" + date_string + \"\\n\\n\" }}\n{{- system_message }}\n\
        {{- \"<|eot_id|>\" }}\n{%- for message in messages %}\n    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}\n        \
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}\n    {%- endif %}\n{%- endfor %}\n\
        {%- if add_generation_prompt %}\n    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}\n{%- endif %}\n";
    let expected = "<|start_header_id|>system<|end_header_id|>\n\nToday Date: 01 Jan 2025\n\nS<|eot_id|>\
        <|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n";
    assert_eq!(prompt(llama).unwrap(), expected);
    let mistral = "{% for message in messages | rejectattr('role', 'equalto', 'system') %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\
        {{ raise_exception('roles must alternate') }}{% endif %}[INST] {{ message.content }} [/INST]{% if not loop.last %}, {% endif %}{% endfor %}\
        {{ messages | map(attribute='role') | join('-') }}{{ messages | selectattr('role', 'eq', 'user') | list | length }}";
    assert_eq!(prompt(mistral).unwrap(), "[INST] U [/INST]system-user1");
    let macros = "{% macro turn(role, text='?', sep=': ') %}{{ role }}{{ sep }}{{ text }};{% endmacro %}{% set seen = namespace(n=0) %}\
        {% for m in messages if m.role != 'tool' %}{% set seen.n = seen.n + 1 %}{{ turn(m.role, m.content, sep='=') }}{% else %}none{% endfor %}{{ seen.n }}{{ turn('x') }}\
        {% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% if true %}{% continue %}{% endif %}!{% endfor %}{% for i in range(9) %}{% if i > 1 %}{% break %}{% endif %}{{ i }}{% endfor %}";
    assert_eq!(prompt(macros).unwrap(), "system=S;user=U;2x: ?;a101");
}

/// The error of loading a vocabulary, which is reported and nothing else.
fn load(tokenizer: &Value) -> Result<Tokenizer, String> {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    fs::write(folder.path().join("config.json"), r#"{"eos_token_id": 1}"#).unwrap();
    Tokenizer::load(folder.path()).map_err(|error| error.to_string())
}

#[test]
fn tokenizers_that_mean_harm() {
    assert!(load(&fallback()).is_ok());
    let with = |part: &str, value: Value| {
        let mut tokenizer = fallback();
        tokenizer[part] = value;
        tokenizer
    };
    let fails = |tokenizer: Value, words: &str| {
        let error = load(&tokenizer).unwrap_err();
        assert!(error.contains("tokenizer.json: ") && error.contains(words), "{error}");
    };
    // The library panics at these.
    for map in ["", "AAAA", "!!!", "AAAAAGFiYwBkZQ==", "/////w==", "BAAAAAAAAAA="] {
        let found = load(&with("normalizer", json!({"type": "Precompiled", "precompiled_charsmap": map})));
        if let Ok(tokenizer) = found {
            // Taken without a map: then it must encode what it is given.
            tokenizer.encode_plain("Grüße\u{0}");
        }
    }
    fails(with("normalizer", json!({"type": "Precompiled", "precompiled_charsmap": "/////w=="})), "");
    fails(with("normalizer", json!({"precompiled_charsmap": "AAAA"})), "");
    // A text would grow without end.
    let double = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"});
    fails(with("normalizer", json!({"type": "Sequence", "normalizers": vec![double; 40]})), "times as long");
    let long = json!({"type": "Replace", "pattern": {"Regex": ""}, "content": "a".repeat(100_000)});
    fails(with("normalizer", long), "times as long");
    fails(with("normalizer", json!({"type": "Prepend", "prepend": "a".repeat(100_000)})), "before a text");
    // What makes no sense.
    for part in ["normalizer", "pre_tokenizer", "model", "decoder", "post_processor", "added_tokens"] {
        for value in [json!(1), json!([1]), json!({"type": "Nothing"}), json!("x"), json!({"type": "Sequence"})] {
            fails(with(part, value), "");
        }
    }
    let mut nested = json!({"type": "NFC"});
    for _ in 0..100 {
        nested = json!({"type": "Sequence", "normalizers": [nested]});
    }
    let _ = load(&with("normalizer", nested));
}

#[test]
fn files_that_are_no_files() {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("tokenizer.json")).unwrap();
    let error = Tokenizer::load(folder.path()).unwrap_err().to_string();
    assert!(error.contains("tokenizer.json: it is no plain file"), "{error}");
    #[cfg(unix)]
    {
        let folder = TempDir::new().unwrap();
        std::os::unix::fs::symlink("/dev/zero", folder.path().join("tokenizer.json")).unwrap();
        let error = Tokenizer::load(folder.path()).unwrap_err().to_string();
        assert!(error.contains("tokenizer.json: it is no plain file"), "{error}");
    }
}
