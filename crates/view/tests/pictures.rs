//! The picture and the page: what they contain, and that nothing untrusted becomes markup.

use lemon_trace::{EventKind, Failure, FailureKind, Trace, sample};
use lemon_view::run::{html, html_linked, svg};
use lemon_view::tags::tags;
use proptest::prelude::*;

const ATTACKS: [&str; 12] = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</title></style></pre><img src=x onerror=alert(1)>",
    "\" onmouseover=\"alert(1)",
    "' onfocus='alert(1)' autofocus='",
    "]]><!--</svg><svg onload=alert(1)>",
    "&lt;script&gt;javascript:alert(1)&#x3c;",
    "[click](javascript:alert(1)) ![x](https://evil.example/x.png)",
    "```\n</code></pre></article><script>alert(1)</script>\n```",
    "| <script> | </td> |\n|---|---|\n| a | onload=x |",
    "# <img src=x onerror=alert(1)>\n- **<svg onload=alert(1)>**",
    "</article></details><script>alert(1)</script>",
];

/// Puts a text everywhere a stranger's text can be.
fn with(text: &str) -> Trace {
    let mut trace = sample::credited(sample::eight());
    let header = &mut trace.header;
    for field in [&mut header.run_id, &mut header.task_id, &mut header.question, &mut header.workers] {
        *field = text.into();
    }
    for event in &mut trace.events {
        if event.agent == "refine" {
            event.agent = text.into();
        }
        match &mut event.kind {
            EventKind::Decision { by, model, text: spec, .. } => {
                (*by, *model, *spec) = (text.into(), Some(text.into()), text.into());
            }
            EventKind::Rejection { diagnostics, .. } => diagnostics.iter_mut().for_each(|fault| {
                (fault.message, fault.hint) = (text.into(), Some(text.into()));
            }),
            EventKind::Spawn { to, base, role, capacity, after, .. } => {
                for field in [base, role, capacity].into_iter().chain(after).chain((to == "refine").then_some(to)) {
                    *field = text.into();
                }
            }
            EventKind::Delegate { duty, .. } => *duty = text.into(),
            EventKind::Message { content, from, .. } => (*content, *from) = (text.into(), text.into()),
            EventKind::Return { reply, answer, failure, model, .. } => {
                for field in [reply, answer, model] {
                    *field = Some(text.into());
                }
                failure.iter_mut().for_each(|failure| failure.message = text.into());
            }
            EventKind::Retry { failure, .. } => failure.message = text.into(),
            EventKind::Aggregate { chosen, answer, candidates, .. } => {
                (*chosen, *answer) = (Some(text.into()), Some(text.into()));
                candidates.iter_mut().for_each(|candidate| candidate.answer = text.into());
            }
            EventKind::Stop { answer, .. } => *answer = Some(text.into()),
            EventKind::Score { rewards, .. } => *rewards = [(text.into(), 0.5)].into(),
            EventKind::Credit { unit, target, edit, .. } => {
                (*target, *edit) = (target.replace("refine", text), Some(text.into()));
                if unit == "turn" {
                    *unit = text.into();
                }
            }
            _ => {}
        }
    }
    trace
}

/// The page without what is rendered from Markdown, and that. The answer is shown large or rendered, by what it is.
fn apart(page: &str) -> (String, String) {
    let (mut outside, mut rendered) = (String::new(), String::new());
    let mut rest = page;
    for (begin, end) in std::iter::once(("<div class=\"answer", "<dl class=\"facts\">"))
        .chain(std::iter::repeat(("<article", "</article>")))
    {
        let Some((before, after)) = rest.split_once(begin) else { break };
        let (inside, after) = after.split_once(end).unwrap_or_else(|| panic!("no {end} after {begin}"));
        outside.push_str(before);
        rendered.push_str(begin);
        rendered.push_str(inside);
        rest = after;
    }
    (outside + rest, rendered)
}

/// A text makes the same markup as a plain one with the same words: some metrics exist only where words are enough. Where
/// it is rendered it makes what Markdown makes of it, and that from a short list of tags.
fn check_harmless(text: &str) {
    const RENDERED: [&str; 26] = [
        "article",
        "p",
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
        "li",
        "blockquote",
        "div",
        "span",
        "button",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
    ];
    let (plain, attacked) = (with(&text.replace(|char: char| !char.is_whitespace(), "x")), with(text));
    assert_eq!(tags(&svg(&plain)), tags(&svg(&attacked)), "{text}");
    let ((plain, _), (attacked, rendered)) = (apart(&html(&plain)), apart(&html(&attacked)));
    assert_eq!(tags(&plain), tags(&attacked), "{text}");
    for tag in tags(&rendered) {
        let name = tag.trim_start_matches('/').split(' ').next().unwrap_or_default();
        let is_plain = !tag.contains("on")
            || ["button type= class=", "/button", "span", "/span", "strong", "/strong"].contains(&tag.as_str());
        let is_link = tag == "a href= rel=" || tag == "/a" || tag == "small" || tag == "/small" || tag == "a href=";
        assert!(is_link || is_plain && RENDERED.contains(&name), "<{tag}> of {text}");
    }
}

#[test]
fn attacks_stay_text() {
    for attack in ATTACKS {
        check_harmless(attack);
        let page = html(&with(attack));
        assert_eq!(page.matches("<script").count(), 1);
        assert_eq!(page.matches("</script").count(), 1);
        assert!(page.len() > 10_000);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn texts_never_become_markup(text in "[<>\"'&=/a-z \\-!\u{0}\u{7f}]{1,40}") {
        check_harmless(&text);
    }

    #[test]
    fn any_trace_can_be_drawn(seed: u64, credit: bool) {
        let trace = sample::random(seed);
        let trace = if credit { sample::credited(trace) } else { trace };
        let (picture, page) = (svg(&trace), html(&trace));
        for agent in trace.summary().agents {
            let marker = format!("data-agent=\"{}\"", agent.id);
            prop_assert_eq!(picture.matches(&marker).count(), 1);
            prop_assert!(page.contains(&marker));
        }
        prop_assert!(!picture.contains("NaN") && !picture.contains("inf"));
    }
}

#[test]
fn loads_nothing_from_elsewhere() {
    for trace in [sample::three(), sample::eight(), sample::credited(sample::forty())] {
        let page = html(&trace).replace("http://www.w3.org/2000/svg", "");
        for sign in ["http:", "https:", "//", "src=", "@import", "url("] {
            let rest = page.replace("url(#lemon-tip", "").replace("// ", "");
            assert!(!rest.contains(sign), "{sign}");
        }
    }
}

#[test]
fn the_same_trace_gives_the_same_bytes() {
    assert_eq!(svg(&sample::forty()), svg(&sample::forty()));
    assert_eq!(html(&sample::forty()), html(&sample::forty()));
}

#[test]
fn a_small_picture() {
    let picture = svg(&sample::three());
    let (_, body) = picture.split_once("</style>").unwrap();
    insta::assert_snapshot!(body);
}

#[test]
fn a_small_picture_with_credit() {
    let picture = svg(&sample::credited(sample::three()));
    let (_, body) = picture.split_once("</style>").unwrap();
    insta::assert_snapshot!(body);
}

/// Colours only repeat what words say, and without credit nothing speaks of it.
#[test]
fn credit_on_the_page() {
    let page = html(&sample::credited(sample::three()));
    for part in ["<a href=\"#credit\">", "<section id=\"credit\">", "worth unmeasured", "worth above", "worth below"] {
        assert!(page.contains(part), "{part}");
    }
    let bars = page.matches("class=\"balance\"").count();
    let rows = page.matches("<td class=\"n worth ").count();
    let unmeasured = page.matches(">not measured</td>").count();
    assert!(bars > 5 && unmeasured > 2 && bars + unmeasured == rows, "{bars} bars, {unmeasured} of {rows}");
    let plain = html(&sample::three());
    assert!(!plain.contains("id=\"credit\"") && !plain.contains("not measured"));
}

/// Numbers that are none come from no profile, but a trace can say anything.
#[test]
fn absurd_credit_is_drawn_all_the_same() {
    for absurd in [f64::NAN, f64::INFINITY, f64::MAX, f64::MIN, -0.0] {
        let mut trace = sample::credited(sample::eight());
        for event in &mut trace.events {
            if let EventKind::Credit { effect, standard_error, .. } = &mut event.kind {
                (*effect, *standard_error) = (Some(absurd), Some(absurd));
            }
        }
        let (picture, page) = (svg(&trace), html(&trace));
        assert!(!picture.contains("NaN") && !page.contains("NaN%") && page.ends_with("</html>\n"));
    }
}

#[test]
fn absurd_times_are_drawn_all_the_same() {
    let mut trace = sample::eight();
    for event in &mut trace.events {
        event.t = f64::MAX;
        event.spend.seconds = -1.0;
    }
    assert!(html(&trace).ends_with("</html>\n"));
}

/// A run of one agent that says this.
fn saying(text: &str) -> Trace {
    let mut trace = sample::three();
    for event in &mut trace.events {
        match &mut event.kind {
            EventKind::Return { reply, answer, .. } => (*reply, *answer) = (Some(text.into()), Some(text.into())),
            EventKind::Aggregate { answer, .. } | EventKind::Stop { answer, .. } => *answer = Some(text.into()),
            _ => {}
        }
    }
    trace
}

#[test]
fn the_answer_comes_first_and_is_rendered() {
    let text = "# Plan\n\n1. **Pack**\n2. Go\n\n```python\nprint(1 < 2)\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n";
    let page = html(&saying(text));
    let place = |part: &str| page.find(part).unwrap_or_else(|| panic!("{part} is missing"));
    assert!(place("<h3>Plan</h3>") < place("<dl class=\"facts\">"), "the answer comes before the numbers");
    for part in ["<li><strong>Pack</strong></li>", "<pre><code>print(1 &lt; 2)</code></pre>", "<td>1</td>"] {
        assert!(place(part) < place("<section id=\"team\">"), "{part}");
    }
    let sections =
        ["team", "replies", "timeline", "messages", "costs"].map(|id| place(&format!("<section id=\"{id}\">")));
    assert!(sections.is_sorted());
    // The button copies what the model wrote, not what it looks like.
    assert!(page.contains("<pre class=\"source\" hidden># Plan\n\n1. **Pack**"));
    let short = html(&saying("42"));
    assert!(short.contains("<p class=\"short\">42</p>") && short.contains("<pre class=\"source\" hidden>42</pre>"));
}

#[test]
fn failed_agents_say_why_without_being_opened() {
    let page = html(&sample::eight());
    let summaries: String =
        page.split("<summary>").skip(1).filter_map(|rest| rest.split("</summary>").next()).collect();
    assert!(summaries.contains("server error: 503: the model is overloaded"), "{summaries}");
    assert!(summaries.contains("parent failed: an agent it reads has failed"), "{summaries}");
    let (head, _) = page.split_once("<dl class=\"facts\">").unwrap();
    assert!(head.contains("2 of 9 agents gave no result."), "{head}");
    assert!(!html(&sample::three()).contains("gave no result"));
}

#[test]
fn a_reply_that_was_cut_off_is_marked() {
    let mut trace = saying("Day 1: arrive.\n\nDay 2: see the");
    for event in &mut trace.events {
        if let EventKind::Return { failure, .. } = &mut event.kind {
            *failure = Some(Failure { kind: FailureKind::Truncated, message: "it reached 64 tokens".into() });
        }
    }
    let page = html(&trace);
    assert!(page.contains("The answer is cut off") && page.contains("<code>max_tokens</code>"));
    assert_eq!(page.matches("<small class=\"status failed\">cut off</small>").count(), 3);
    assert!(page.contains("<p>Day 2: see the</p>"));
    assert!(!html(&sample::eight()).contains("cut off"));
}

#[test]
fn long_replies_are_closed_and_say_how_they_begin() {
    let long = format!("First words.\n\n{}", "and more words ".repeat(100));
    let page = html(&saying(&long));
    assert_eq!(page.matches("<details class=\"agent\"").count(), 3);
    assert!(!page.contains("<details class=\"agent\" data-agent=\"solve\" open>"));
    assert!(page.contains("<span class=\"begins\">First words.</span>"));
    assert!(html(&saying("short")).contains("<details class=\"agent\" data-agent=\"solve\" open>"));
}

/// The phone's picture has every agent, too, and is no wider than its widest layer.
#[test]
fn a_second_picture_for_phones() {
    let page = html(&sample::three());
    let (_, down) = page.split_once("<div class=\"graph down\"").unwrap();
    let (down, _) = down.split_once("</svg>").unwrap();
    for agent in ["solve", "check", "report"] {
        assert_eq!(down.matches(&format!("data-agent=\"{agent}\"")).count(), 1);
    }
    let width = down.split("viewBox=\"0 0 ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    assert!(width.parse::<f64>().unwrap() <= 400.0, "{width}");
    assert!(!down.contains("url(#lemon-tip)"), "tips have names of their own");
}

#[test]
fn the_list_of_runs_is_linked_where_there_is_one() {
    let trace = sample::three();
    assert!(!html(&trace).contains("All runs"));
    assert!(html_linked(&trace, "index.html", "All runs").contains("<a href=\"index.html\">All runs</a>"));
}
