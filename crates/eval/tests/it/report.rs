//! The renderings of an evaluation: what they contain, and that nothing untrusted becomes markup.

mod sample;

use lemon_eval::report::items::{ItemDetail, MOST_ITEMS, ReplyDetail, chosen};
use lemon_eval::report::{csv, html, html_with_items, json, markdown};
use lemon_eval::{AgentRow, Evaluation, Report, Row, SetUp};
use lemon_view::tags::tags;
use proptest::prelude::*;
use sample::Shape;

const SMALL: Shape = Shape { methods: 3, sets: &["sums/test", "words/test"], items: 6, seeds: 1 };
const LARGE: Shape = Shape { methods: 7, sets: &["sums/test", "words/test"], items: 100, seeds: 1 };

fn page(shape: &Shape) -> (String, Evaluation) {
    let evaluation = sample::evaluation(shape);
    (html(&Report::new(&evaluation), &evaluation), evaluation)
}

#[test]
fn a_small_evaluation_as_markdown() {
    insta::assert_snapshot!(markdown(&Report::new(&sample::evaluation(&SMALL))));
}

#[test]
fn a_small_evaluation_as_csv() {
    let mut evaluation = sample::evaluation(&SMALL);
    evaluation.rows.truncate(4);
    evaluation.rows[1].answer = Some("1,5 \"or\"\nso".into());
    evaluation.rows[2].usd = None;
    insta::assert_snapshot!(csv(&evaluation));
}

#[test]
fn json_reads_back() {
    let report = Report::new(&sample::evaluation(&SMALL));
    assert_eq!(serde_json::from_str::<Report>(&json(&report)).unwrap(), report);
}

#[test]
fn every_run_is_on_the_page() {
    let several_seeds = Shape { seeds: 3, ..SMALL };
    for shape in [&SMALL, &LARGE, &several_seeds] {
        let (page, evaluation) = page(shape);
        check_balanced(&page);
        for row in &evaluation.rows {
            assert!(page.contains(&format!("\"{}\"", row.run_id)), "{}", row.run_id);
            assert!(page.contains(&format!("\"{}\"", row.item_id)), "{}", row.item_id);
        }
        assert!(page.matches("<svg class=\"chart").count() == 2 + evaluation.set_up.sets.len());
    }
}

#[test]
fn a_run_of_six_agents_takes_few_bytes() {
    let (page, evaluation) = page(&LARGE);
    let per_run = data_of(&page).len() / evaluation.rows.len();
    assert!((100..300).contains(&per_run), "{per_run} bytes a run");
}

#[test]
fn the_page_loads_nothing_from_elsewhere() {
    let page = page(&LARGE).0.replace("http://www.w3.org/2000/svg", "");
    for sign in ["http://", "https://", "src=", "@import", "url(", "<link", "<img", "<iframe"] {
        assert!(!page.contains(sign), "{sign}");
    }
}

#[test]
fn the_same_evaluation_gives_the_same_bytes() {
    assert_eq!(page(&LARGE).0, page(&LARGE).0);
}

#[test]
fn says_so_when_nothing_can_be_told_apart() {
    let check = |holm_p: f64, expected: &str| {
        let mut report = Report::new(&sample::evaluation(&SMALL));
        report.pairs.iter_mut().for_each(|pair| pair.holm_p = holm_p);
        for text in [markdown(&report), html(&report, &sample::evaluation(&SMALL))] {
            assert!(text.contains(expected), "{text}");
        }
    };
    check(0.05, "None of the 3 differences in accuracy survives");
    check(0.05, "These runs do not tell the methods apart.");
    check(0.049, "Of 3 differences in accuracy, 3 survive Holm’s correction at 5 %");
}

#[test]
fn says_so_when_runs_are_missing() {
    let mut evaluation = sample::evaluation(&SMALL);
    evaluation.rows.pop();
    let report = Report::new(&evaluation);
    assert!(
        markdown(&report)
            .contains("Partial: 35 of 36 runs. The methods are compared on the 11 runs that each of them has.")
    );
    assert!(html(&report, &evaluation).contains("<p class=\"partial\">Partial: 35 of 36 runs. "));
    let whole = sample::evaluation(&SMALL);
    assert!(!html(&Report::new(&whole), &whole).contains("Partial"));
}

/// What the page says of some items, with a text everywhere a stranger's text can be.
fn details(text: &str) -> Vec<ItemDetail> {
    let reply = |right| ReplyDetail {
        method: text.into(),
        run_id: text.into(),
        right,
        answer: Some(text.into()),
        text: Some(text.into()),
        page: right.then(|| text.into()),
    };
    let item = ItemDetail {
        set: text.into(),
        item_id: text.into(),
        question: text.into(),
        expected: text.into(),
        replies: vec![reply(true), reply(false)],
    };
    vec![item]
}

#[test]
fn items_with_question_expected_answer_and_replies() {
    let evaluation = sample::evaluation(&SMALL);
    let report = Report::new(&evaluation);
    let text = "**bold** and\n```python\nprint(1 < 2)\n```";
    let page = html_with_items(&report, &evaluation, &details(text));
    check_balanced(&page);
    assert!(page.contains("<a href=\"#replies\">Questions</a>"));
    for part in ["<h3>Question</h3>", "<h3>Expected answer</h3>", "<strong>bold</strong>", "print(1 &lt; 2)</code>"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(page.contains("1 item of 12: those on which methods differ come first"));
    let silent = ItemDetail { replies: vec![ReplyDetail::default()], ..ItemDetail::default() };
    assert!(html_with_items(&report, &evaluation, &[silent]).contains("No reply is on record."));
    assert!(!html(&report, &evaluation).contains("id=\"replies\""));
}

#[test]
fn items_on_which_methods_differ_come_first() {
    let evaluation = sample::evaluation(&LARGE);
    let items = chosen(&evaluation);
    assert_eq!(items.len(), MOST_ITEMS);
    let differs = |rows: &Vec<&Row>| rows.iter().any(|row| row.right != rows[0].right);
    assert!(items.iter().all(|rows| rows.len() == 7 && differs(rows)));
    let few = sample::evaluation(&Shape { seeds: 3, ..SMALL });
    let items = chosen(&few);
    assert_eq!(items.len(), 12);
    assert!(items.iter().all(|rows| rows.len() == 3), "one run a method");
    assert!(items.is_sorted_by_key(|rows| !differs(rows)));
}

/// A name that is too long to stand beside its bar stands above it, whole.
#[test]
fn long_names_of_methods_are_not_cut() {
    let mut evaluation = sample::evaluation(&SMALL);
    let name = "self-consistency-of-nine-agents";
    evaluation.set_up.methods[1] = name.into();
    evaluation
        .rows
        .iter_mut()
        .filter(|row| &*row.method == "self-consistency")
        .for_each(|row| row.method = name.into());
    let page = html(&Report::new(&evaluation), &evaluation);
    let pictures: Vec<&str> =
        page.split("<svg class=\"chart").skip(1).filter_map(|rest| rest.split("</svg>").next()).collect();
    assert_eq!(pictures.len(), 4);
    for picture in pictures {
        assert!(picture.contains(&format!(">{name}</text>")), "{picture}");
    }
}

const ATTACKS: [&str; 9] = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "--></script><img src=x onerror=alert(1)>",
    "</title></style></pre></svg><b>",
    "\" onmouseover=\"alert(1)",
    "' onfocus='alert(1)' autofocus='",
    "&lt;script&gt;javascript:alert(1)&#x3c;",
    "abc\u{202e}fed\u{2066}\0\u{1b}[31m",
];

/// Puts a text everywhere a stranger's text can be.
fn with(text: &str) -> (Report, Evaluation) {
    let mut evaluation = sample::evaluation(&SMALL);
    evaluation.training =
        vec![lemon_eval::Training { method: text.into(), runs: 1, tokens: 2, spec: text.into(), ..Default::default() }];
    let SetUp { eval_id, sets, methods, capacity, workers, .. } = &mut evaluation.set_up;
    (*eval_id, *workers, *capacity) = (text.into(), text.into(), Some(text.into()));
    (sets[0], methods[0]) = (text.into(), text.into());
    for (place, row) in evaluation.rows.iter_mut().enumerate() {
        row.answer = Some(text.into());
        row.item_id = text.into();
        row.run_id = text.into();
        if place < 6 {
            (row.set, row.method) = (text.into(), text.into());
        }
        for AgentRow { id, base, role, capacity, after, answer, .. } in &mut row.agents {
            [id, base, role, capacity].into_iter().for_each(|field| *field = text.into());
            (*after, *answer) = (vec![text.into()], Some(text.into()));
        }
    }
    let mut report = Report::new(&evaluation);
    report.methods.iter_mut().for_each(|method| {
        method.ends.insert(text.into(), 1);
        method.bands.iter_mut().for_each(|band| band.events = text.into());
    });
    (report, evaluation)
}

/// A text makes the same markup as a plain one of the same length.
fn check_harmless(text: &str) {
    let plain: String = text.chars().map(|_| 'x').collect();
    let page = |text: &str| {
        let (report, evaluation) = with(text);
        html_with_items(&report, &evaluation, &details(text))
    };
    let attacked = page(text);
    assert_eq!(unrendered(&page(&plain)), unrendered(&attacked), "{text}");
    assert!(!attacked.contains(['\u{202e}', '\u{2066}', '\0', '\u{1b}']), "{text:?}");
    check_balanced(&attacked);
    check_data(&attacked);
}

/// The embedded runs are JSON, and nothing in them ends the element they are in.
fn check_data(page: &str) {
    let data = data_of(page);
    assert!(!data.contains('<'));
    assert!(serde_json::from_str::<serde_json::Value>(data).is_ok_and(|data| data.is_object()));
}

fn data_of(page: &str) -> &str {
    let data = page.split_once("id=\"data\">").and_then(|(_, rest)| rest.split_once("</script>"));
    data.map_or("", |(data, _)| data)
}

/// The skeleton without what Markdown made of texts; what that may be is tested where it is made.
fn unrendered(page: &str) -> Vec<String> {
    let mut inside = false;
    let keep = |tag: &String| {
        inside = (inside || tag.starts_with("article")) && tag != "/article";
        !inside
    };
    tags(page).into_iter().filter(keep).collect()
}

/// Every element that is opened is closed, in order.
fn check_balanced(page: &str) {
    let mut open: Vec<String> = Vec::new();
    for tag in tags(page) {
        let name: String = tag.chars().take_while(|char| char.is_ascii_alphanumeric()).collect();
        match tag.strip_prefix('/') {
            Some(closed) => assert_eq!(open.pop().as_deref(), Some(closed)),
            None if tag.starts_with('!') || tag.ends_with('/') => {}
            None if ["meta", "input", "br", "hr"].contains(&name.as_str()) => {}
            None => {
                assert!(!name.is_empty(), "<{tag}>");
                open.push(name);
            }
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn attacks_stay_text() {
    for attack in ATTACKS {
        check_harmless(attack);
        let (report, evaluation) = with(attack);
        assert!(!markdown(&report).contains("<script"), "{attack}");
        assert!(csv(&evaluation).lines().count() >= evaluation.rows.len());
    }
}

#[test]
fn nothing_at_all_can_be_shown() {
    let empty = Evaluation { set_up: SetUp::default(), training: Vec::new(), rows: Vec::new() };
    let report = Report::new(&empty);
    check_balanced(&html(&report, &empty));
    assert!(markdown(&report).starts_with("# 0 methods\n"));
    assert_eq!(csv(&empty).lines().count(), 1);
}

/// Numbers that a report should not have, and might.
fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![
        -2.0..2.0,
        0.0..1e6,
        Just(0.0),
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(f64::NEG_INFINITY),
        Just(f64::MAX),
        Just(f64::MIN_POSITIVE),
    ]
}

fn any_row() -> impl Strategy<Value = Row> {
    let agent = (".{0,5}", prop::collection::vec(".{0,5}", 0..3), any::<Option<bool>>(), any::<u64>());
    let agent = agent.prop_map(|(id, after, right, tokens)| AgentRow {
        id: id.into(),
        after: after.into_iter().map(Into::into).collect(),
        right,
        tokens,
        ..AgentRow::default()
    });
    let texts = (".{0,8}", ".{0,8}", "[ab]", prop::option::of(".{0,20}"));
    (texts, any::<(u8, u64, bool, u64)>(), any_number(), prop::collection::vec(agent, 0..5)).prop_map(
        |((set, item_id, method, answer), (item, seed, right, calls), wall_s, agents)| Row {
            run_id: item_id.clone(),
            usd: Some(wall_s),
            item: item.into(),
            set: set.into(),
            item_id: item_id.into(),
            method: method.into(),
            answer: answer.map(Into::into),
            seed,
            right,
            calls,
            wall_s,
            agents,
            ..Row::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn texts_never_become_markup(text in "[<>\"'&=/a-z \\-!\u{0}\u{7f}\u{202e}]{1,40}") {
        check_harmless(&text);
    }

    #[test]
    fn any_rows_can_be_shown(rows in prop::collection::vec(any_row(), 0..12)) {
        let set_up = SetUp { methods: vec!["a".into(), "b".into()], ..SetUp::default() };
        let evaluation = Evaluation { set_up, training: Vec::new(), rows };
        let report = Report::new(&evaluation);
        let page = html(&report, &evaluation);
        check_balanced(&page);
        check_data(&page);
        prop_assert!(markdown(&report).ends_with('\n'));
        prop_assert!(json(&report).ends_with('\n'));
        prop_assert!(csv(&evaluation).ends_with('\n'));
    }

    #[test]
    fn any_numbers_can_be_shown(numbers in prop::collection::vec(any_number(), 24)) {
        let evaluation = sample::evaluation(&SMALL);
        let mut report = Report::new(&evaluation);
        let mut numbers = numbers.into_iter().cycle();
        let mut next = || numbers.next().unwrap();
        for method in &mut report.methods {
            (method.accuracy, method.tokens, method.legacy_accuracy) = (next(), next(), next());
            (method.interval, method.tokens_interval) = ([next(), next()], [next(), next()]);
            (method.usd, method.calls) = (Some(next()), next());
        }
        for pair in &mut report.pairs {
            (pair.difference, pair.holm_p, pair.interval) = (next(), next(), [next(), next()]);
        }
        let page = html(&report, &evaluation);
        check_balanced(&page);
        let pictures = page.split("<svg").skip(1).filter_map(|rest| rest.split_once("</svg>"));
        for (svg, _) in pictures {
            prop_assert!(!svg.contains("NaN") && !svg.contains("inf"));
        }
        prop_assert!(!markdown(&report).contains("NaN"));
    }
}
