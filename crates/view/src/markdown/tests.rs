use super::*;
use crate::tags::tags;
use proptest::prelude::*;

/// What the renderer may write, as tags without the values of their attributes.
const ALLOWED: [&str; 32] = [
    "article class=",
    "p",
    "p class=",
    "br",
    "hr",
    "h3",
    "h4",
    "h5",
    "h6",
    "em",
    "strong",
    "s",
    "code",
    "pre",
    "ul",
    "ol",
    "ol start=",
    "li",
    "blockquote",
    "div class=",
    "span",
    "button type= class=",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "th class=",
    "td",
    "td class=",
    "small",
    "a href= rel=",
];

/// Only allowed tags, each closed in order; links to the web only.
#[track_caller]
fn check_safe(source: &str) -> String {
    let html = markdown(source).into_string();
    let mut open: Vec<String> = Vec::new();
    for tag in tags(&html) {
        if let Some(closed) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(closed), "closed out of order: {source:?}\n{html}");
            continue;
        }
        assert!(ALLOWED.contains(&tag.as_str()), "<{tag}> in {source:?}\n{html}");
        let name = tag.split(' ').next().unwrap_or_default();
        if !["br", "hr"].contains(&name) {
            open.push(name.to_owned());
        }
    }
    assert!(open.is_empty(), "never closed: {open:?} in {source:?}");
    for (_, rest) in html.match_indices("href=\"").map(|(at, mark)| html.split_at(at + mark.len())) {
        let is_web = ["http://", "https://"].iter().any(|web| rest.to_lowercase().starts_with(web));
        assert!(is_web, "{source:?}\n{html}");
    }
    assert!(!html.contains(['\0', '\u{202e}']));
    html
}

fn inside(source: &str) -> String {
    let html = check_safe(source);
    html.trim().trim_start_matches("<article class=\"md\">").trim_end_matches("</article>").trim().to_owned()
}

#[test]
fn what_models_write() {
    let check = |source: &str, expected: &str| assert_eq!(inside(source), expected, "{source:?}");
    check("", "");
    check("plain & <simple>", "<p>plain &amp; &lt;simple&gt;</p>");
    check("**bold** and *slanted*", "<p><strong>bold</strong> and <em>slanted</em></p>");
    check("# One\n#### Day 2", "<h3>One</h3>\n<h6>Day 2</h6>");
    check("one\ntwo", "<p>one<br>\ntwo</p>");
    check("- a\n- b", "<ul><li>a</li>\n<li>b</li>\n</ul>");
    check("3. a\n4. b", "<ol start=\"3\"><li>a</li>\n<li>b</li>\n</ol>");
    check("- [x] done", "<ul><li>☑ done</li>\n</ul>");
    check("use `x < y`", "<p>use <code>x &lt; y</code></p>");
    check(
        "```python title=\"x\"\nif a < b:\n    pass\n```",
        "<div class=\"code\"><p><span>python</span><button type=\"button\" class=\"copy\">Copy</button></p>\
         <pre><code>if a &lt; b:\n    pass</code></pre></div>",
    );
    check(
        "| a | b |\n|---|--:|\n| 1 | 2 |",
        "<div class=\"wide\"><table><thead><tr><th>a</th><th class=\"n\">b</th></tr></thead>\n\
         <tbody><tr><td>1</td><td class=\"n\">2</td></tr>\n</tbody></table></div>",
    );
    // A reply that was cut off in the middle of its code.
    assert!(inside("So:\n```rust\nfn main() {").ends_with("<pre><code>fn main() {</code></pre></div>"));
}

#[test]
fn links_lead_to_the_web_and_say_where() {
    let check = |source: &str, expected: &str| assert_eq!(inside(source), format!("<p>{expected}</p>"), "{source:?}");
    let rel = "rel=\"noopener noreferrer nofollow\"";
    check(
        "[your bank](https://evil.example/a?b=1&c)",
        &format!("<a href=\"https://evil.example/a?b=1&amp;c\" {rel}>your bank</a> <small>(evil.example)</small>"),
    );
    check(
        "[x](https://bank.example@evil.example)",
        &format!("<a href=\"https://bank.example@evil.example\" {rel}>x</a> <small>(evil.example)</small>"),
    );
    check("<https://example.org>", &format!("<a href=\"https://example.org\" {rel}>https://example.org</a>"));
    check("[x](javascript:alert(1))", "x (javascript:alert(1))");
    check("[x](JaVaScRiPt:alert`1`)", "x (JaVaScRiPt:alert`1`)");
    check("[x](data:text/html,<b>)", "x (data:text/html,&lt;b&gt;)");
    check("[x](file:///etc/passwd)", "x (file:///etc/passwd)");
    check("[x](//evil.example)", "x (//evil.example)");
    check("[x](/local)", "x (/local)");
    check("[x](https://)", "x (https://)");
    check("<someone@example.org>", "someone@example.org (someone@example.org)");
    check(
        "![a *view*](https://evil.example/track.png)",
        "<span>picture: a <em>view</em> (https://evil.example/track.png)</span>",
    );
    check(
        "[x](https://a.example/\"onmouseover=\"alert(1))",
        &format!(
            "<a href=\"https://a.example/&quot;onmouseover=&quot;alert(1)\" {rel}>x</a> <small>(a.example)</small>"
        ),
    );
}

#[test]
fn hostile_texts_stay_text() {
    for source in [
        "<script>alert(1)</script>",
        "text <script>alert(1)</script> text",
        "<div onclick=\"alert(1)\">\n\n# x\n</div>",
        "```\n</code></pre></div></article><script>alert(1)</script>\n```",
        "```\"><script>alert(1)</script>\nx\n```",
        "`</code><img src=x onerror=alert(1)>`",
        "</article></pre></details>",
        "<!-- a comment that never ends",
        "<![CDATA[ x ]]> <?php x ?>",
        "**[<img src=x onerror=alert(1)>](javascript:alert(1))**",
        "| <script> | b |\n|---|---|\n| </table> | \"' onload=x |",
        "- > - > 1. # `<b>`",
        "&lt;script&gt; &#60;script&#62; &#x0; &nbsp;",
        "[a]: javascript:alert(1) \"title\"\n\n[a] [a][a] ![a]",
        "[x](https://a.example \"title \\\" onclick=alert(1)\")",
        "---\ntitle: <script>\n---\ntext",
        "a\0b\u{202e}c\u{1b}[31m",
    ] {
        let html = check_safe(source);
        assert!(!html.contains("<script") && !html.contains("<img"), "{html}");
    }
}

#[test]
fn a_program_without_a_fence_is_code() {
    let check = |source: &str, expected: Option<&str>| assert_eq!(program(source), expected, "{source:?}");
    check("def f(x):\n    # a comment\n    return x + 1\n", Some("python"));
    check("import os\n\n# list\nprint(os.listdir())\n", Some("python"));
    check("#include <stdio.h>\nint main() {\n  return 0;\n}\n", Some("c"));
    check("{\"a\": [1, 2]}", Some("json"));
    check("[not a list]", None);
    check("From here on we count.\nThere are three.", None);
    check("Class A is better: it costs less.", None);
    check("import duties are taxes on goods.", None);
    check("Here it is:\n```python\ndef f(): pass\n```", None);
    let html = check_safe("def f(x):\n    # not a heading\n    return x < 1\n");
    assert!(html.contains("    # not a heading\n    return x &lt; 1</code>"), "{html}");
}

#[test]
fn short_answers_are_told_from_texts() {
    let check = |source: &str, expected: bool| assert_eq!(is_short(source), expected, "{source:?}");
    check("21", true);
    check("$33.50 at the till", true);
    check("", false);
    check("a\nb", false);
    check("# Day 2", false);
    check("**21**", false);
    check(&"x".repeat(121), false);
}

/// Texts on which a careless parser takes quadratic time or overflows its stack. They end, and stay within bounds.
#[test]
fn huge_and_nested_texts_end() {
    let many = 150_000;
    for piece in [
        "[",
        "![",
        "](",
        "*",
        "**a",
        "_a ",
        "`",
        "``` \n",
        "> ",
        "- ",
        "1. ",
        "<",
        "<!--",
        "<a ",
        "&",
        "\\",
        "|",
        "|-|\n",
        "a|\n-|\n",
        "[a](",
        "[a][",
        "~~",
        "# ",
        "<https://",
        "\u{202e}",
        "- - - ",
    ] {
        let source = piece.repeat(many / piece.len());
        let html = check_safe(&source);
        assert!(html.len() < 100 * many, "{piece:?}: {} bytes", html.len());
    }
    let nested: String = (0..400).map(|depth| format!("{}- a\n", "  ".repeat(depth))).collect();
    let deepest = check_safe(&nested).matches("<ul>").count();
    assert!(deepest <= DEEPEST, "{deepest}");
    let long = check_safe(&"x ".repeat(2_000_000));
    assert!(long.len() < 1_100_000 && long.contains("3,000,000 more bytes"), "{}", long.len());
    check_safe(&"é".repeat(600_000));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_text_renders_to_allowed_tags(text: String) {
        check_safe(&text);
    }

    #[test]
    fn any_markdown_renders_to_allowed_tags(text in "([-*_`~#>|:!\\[\\]()<>/\"'&=+.\\\\ \n\ta-c0-2]|https://|javascript:|```|<script>|</pre>){0,120}") {
        check_safe(&text);
    }
}
