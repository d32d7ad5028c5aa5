//! The application of `lemon serve`, used in a real browser.

use crate::browser::Browser;
use crate::common::{Folder, wait_until};
use crate::served::Served;
use lemon_fakes::{Behaviour, FakeEndpoint, FakeReply};
use serde_json::{Value, json};

/// What a page must not do, whatever a model says.
const HOSTILE: &str = "# <script>window.owned = 1</script>\n\n<img src=x onerror=\"window.owned = 2\"> \
                       [click](javascript:window.owned=3) <svg onload=\"window.owned = 4\"></svg>\n\n\
                       </pre></textarea></template><iframe srcdoc=\"<script>parent.owned = 5</script>\"></iframe>\n\n\
                       ```html\n<style>body { display: none }</style><base href=\"https://evil.example/\">\n```\n\n\
                       ![pixel](https://evil.example/pixel.png)\n\nAnswer: <b style=\"position:fixed\" onclick=\"window.owned = 6\">42</b>";

const TEAM: &str = "agents:\n  - {id: one, base: solver, capacity: small}\n  - {id: two, base: critic, capacity: large, after: [one]}\n\
                    answer: {from: [two], by: last}\n";

/// The pages that need nothing, and what each must show.
const PAGES: [(&str, &str); 8] = [
    ("/ask", "What should the team work on?"),
    ("/runs", "Runs"),
    ("/teams", "Teams"),
    ("/teams/edit", "Valid: 3 agents"),
    ("/evaluations", "Evaluations"),
    ("/trainings", "Trainings"),
    ("/system", "Models"),
    ("/login", "Sign in"),
];

fn page(served: &Served, path: &str) -> String {
    format!("http://{}{path}", served.address)
}

/// Asks in the chat, and waits for the end.
#[track_caller]
fn ask(browser: &Browser, question: &str) -> String {
    let turns = browser.run("return document.querySelectorAll('.turn').length").as_u64().unwrap();
    browser.type_into("#question", &format!("{question}\u{e007}"));
    browser.wait(&format!("document.querySelectorAll('.turn').length === {} + 1", turns));
    browser.wait("document.querySelector('.turn:last-child').ariaBusy === 'false'");
    browser.run("return document.querySelector('.turn:last-child').dataset.run").as_str().unwrap().to_owned()
}

#[track_caller]
fn assert_no_complaints(browser: &Browser) {
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:?}");
}

#[test]
fn a_question_on_the_bundled_models_is_answered() {
    let Some(browser) = Browser::open(1400, 900) else { return };
    let folder = Folder::new();
    let served = Served::start(&folder, &["--workers", "bundled"]);
    browser.go(&page(&served, "/"));
    browser.wait("document.querySelector('#question') === document.activeElement");
    assert!(browser.text().contains("arithmetic word problems"));
    let run = ask(&browser, "Ana has 3 pens and buys 4 more. How many pens does she have?");
    let result = browser.run("return document.querySelector('.turn .result').innerText");
    let trace = folder.trace(&run);
    let answer = trace.summary().answer.unwrap();
    let last = answer.lines().last().unwrap().trim_start_matches("Answer: ");
    assert!(result.as_str().unwrap().contains(last), "{result} {answer}");
    // The team was drawn and every agent has ended.
    let agents = trace.summary().agents.len();
    browser.wait(&format!("document.querySelectorAll('.turn .graph.across .agent.done').length === {agents}"));
    // Once more with one thing changed, and both side by side.
    browser.press(".turn .menu summary");
    browser.press(".turn .menu li button");
    browser.wait("document.querySelectorAll('.turn').length === 2");
    browser.wait("document.querySelector('.turn:last-child').ariaBusy === 'false'");
    assert!(browser.text().contains("Changed: seed 0 → 1."));
    browser.press(".changed a");
    browser.wait("location.pathname === '/runs/compare'");
    let text = browser.text();
    assert!(text.contains("Two runs side by side") && text.contains("seed") && text.contains("Totals"), "{text}");
    assert_no_complaints(&browser);
    // The window keeps the conversation.
    browser.go(&page(&served, "/ask"));
    browser.wait("document.querySelectorAll('.turn .result .md').length === 2");
    assert_no_complaints(&browser);
}

#[test]
fn a_run_is_watched_and_cancelled() {
    let Some(browser) = Browser::open(1400, 900) else { return };
    let slow = Behaviour::text("word ".repeat(400)).per_token_ms(60);
    let endpoint = FakeEndpoint::start(slow).unwrap();
    let folder = Folder::with_endpoint(&endpoint, "").file("teams/pair.yaml", TEAM);
    let served = Served::start(&folder, &[]);
    browser.go(&page(&served, "/ask?team=pair"));
    browser.wait("document.querySelector('#team').value === 'file:pair'");
    browser.type_into("#question", "What is 2 + 2?\u{e007}");
    browser.wait("document.querySelector('.turn .graph.across .agent.running[data-agent=one]')");
    browser.wait("document.querySelector('.turn .status').textContent === '0 of 2 agents have replied'");
    // What is said is seen as it is said.
    browser.wait("document.querySelector('.agents [data-agent=one] pre').textContent.startsWith('word word')");
    // Another window of the same run shows it, too.
    let run = browser.run("return document.querySelector('.turn').dataset.run").as_str().unwrap().to_owned();
    let listed = served.get("/runs?end=running").ok().body;
    assert!(listed.contains(&format!("/runs/{run}")), "it is listed as running");
    browser.run(
        "[...document.querySelectorAll('.turn .actions button')].find((it) => it.textContent === 'Cancel').click()",
    );
    browser.wait("document.querySelector('.turn').ariaBusy === 'false'");
    browser.wait("document.querySelector('.turn .status').textContent === 'Ended: cancelled'");
    assert_eq!(folder.trace(&run).summary().stop_reason.unwrap().as_str(), "cancelled");
    assert_no_complaints(&browser);
}

#[test]
fn a_budget_is_shown_and_kept() {
    let Some(browser) = Browser::open(1400, 900) else { return };
    let endpoint = FakeEndpoint::start(Behaviour::text("It is 4.\nAnswer: 4")).unwrap();
    let folder = Folder::with_endpoint(&endpoint, "").file("teams/pair.yaml", TEAM);
    let served = Served::start(&folder, &[]);
    browser.go(&page(&served, "/ask?team=pair"));
    browser.type_into("#tokens", "9000");
    let run = ask(&browser, "What is 2 + 2?");
    let summary = folder.trace(&run).summary();
    let gauge = browser.run("return document.querySelector('.gauge').innerText");
    let gauge = gauge.as_str().unwrap();
    assert!(gauge.contains(" of 9,000") && gauge.contains(&summary.tokens.total.to_string()), "{gauge}");
    assert_eq!(browser.run("return document.querySelector('.gauge .meter').ariaValueMax"), "9000");
    // With less than a call needs, no call is made.
    browser.run("document.querySelector('#tokens').value = '5'");
    let run = ask(&browser, "What is 3 + 3?");
    assert_eq!(folder.trace(&run).summary().tokens.total, 0);
    assert!(browser.text().contains("Ended: token budget"));
    assert_no_complaints(&browser);
}

#[test]
fn a_team_is_edited_into_an_error_and_back() {
    let Some(browser) = Browser::open(1400, 900) else { return };
    let folder = Folder::with_pair().file("teams/pair.yaml", TEAM);
    let served = Served::start(&folder, &["--workers", "scripted", "--script", "script.toml"]);
    browser.go(&page(&served, "/teams"));
    browser.press(".card-item h2 a");
    browser.wait("document.querySelector('#verdict').textContent.startsWith('Valid: 2 agents')");
    browser.wait("document.querySelector('#graph [data-agent=two]')");
    assert!(browser.run("return document.querySelectorAll('#edits button').length").as_u64().unwrap() > 3);
    let replace = |from: &str, to: &str| {
        let script = "const text = document.getElementById('text'); const at = text.value.indexOf(FROM); text.focus(); \
                      text.setSelectionRange(at, at + FROM.length); document.execCommand('insertText', false, TO);";
        let quoted = |text: &str| Value::from(text).to_string();
        browser.run(&script.replace("FROM", &quoted(from)).replace("TO", &quoted(to)));
    };
    replace("capacity: large", "capacity: huge");
    browser.wait("document.querySelector('#verdict').textContent === 'Not valid: 1 error.'");
    // The same fault as `lemon validate` has, at the same place.
    std::fs::write(folder.path("broken.yaml"), TEAM.replace("large", "huge")).unwrap();
    let validated = folder.lemon(&["validate", "broken.yaml", "--json"]).json();
    let fault = &validated["diagnostics"][0];
    let shown = browser.run("return document.querySelector('#faults li').innerText");
    let shown = shown.as_str().unwrap();
    assert!(shown.contains(fault["message"].as_str().unwrap()), "{shown} {fault}");
    assert!(shown.contains(&format!("{}:{}", fault["line"], fault["column"])), "{shown} {fault}");
    assert_eq!(browser.run("return document.querySelector('#mirror mark').textContent"), "huge");
    assert_eq!(browser.run("return document.getElementById('save').disabled"), true);
    browser.press("#faults button");
    let chosen =
        "const text = document.getElementById('text'); return text.value.slice(text.selectionStart, text.selectionEnd)";
    assert_eq!(browser.run(chosen), "huge");
    replace("capacity: huge", "capacity: medium");
    browser.wait("document.querySelector('#verdict').textContent.startsWith('Valid: 2 agents')");
    browser.press("#save");
    browser.wait("document.querySelector('#saved').textContent === 'Saved as pair.'");
    assert_eq!(folder.read("teams/pair.yaml"), TEAM.replace("large", "medium"));
    // One edit, applied; then the team is run as it is in the editor.
    browser.run("document.querySelector('#edits').closest('details').open = true");
    browser.press("#edits button");
    browser.wait("document.querySelector('#saved').textContent.startsWith('Applied: ')");
    browser.wait("document.querySelector('#verdict').textContent.startsWith('Valid')");
    browser.press("#run");
    browser.wait("location.pathname === '/ask' && document.querySelector('#team').value === 'text'");
    let run = ask(&browser, "What is 2 + 2?");
    assert_eq!(folder.trace(&run).summary().answer.as_deref(), Some("68"));
    assert_no_complaints(&browser);
}

/// An endpoint whose agent calls the calculator once, in a folder where a person has to allow that.
fn with_approval() -> (FakeEndpoint, Folder) {
    let endpoint = FakeEndpoint::start(Behaviour::function(|request| match request.results() {
        0 => FakeReply::tool_call("calculator", r#"{"expression": "17 * 3"}"#),
        _ => FakeReply::Text("Answer: 51".into()),
    }));
    let endpoint = endpoint.unwrap();
    let team = "agents:\n  - {id: solve, base: solver, capacity: small, tools: [calculator]}\n";
    let folder = Folder::with_endpoint(&endpoint, "[tools.calculator]\napprove = true\n[run]\nreuse = false\n");
    (endpoint, folder.file("teams/pair.yaml", team))
}

#[test]
fn a_person_decides_about_calls_of_tools() {
    let (endpoint, folder) = with_approval();
    let served = Served::start(&folder, &[]);
    let start = || {
        let asked = json!({"question": "What is 17 * 3?", "team": {"kind": "file", "name": "pair"}});
        let run = served.post("/api/runs", &asked).json()["run_id"].as_str().unwrap().to_owned();
        wait_until("the call waits", || folder.trace(&run).summary().stop_reason.is_some());
        run
    };
    let decide = |run: &str, decisions: Value| {
        wait_until("no run is under way", || served.counter("lemon_runs_under_way") == 0.0);
        served.post(&format!("/api/runs/{run}/decide"), &json!({ "decisions": decisions }))
    };
    let run = start();
    assert!(served.get(&format!("/runs/{run}")).ok().body.contains("Approve the call"));
    assert!(served.get("/runs?end=approval").ok().body.contains(&run));
    let wrong = decide(&run, json!({"solve/c9.9": true}));
    assert!(wrong.refused(409, None)["message"].as_str().unwrap().contains("no call `solve/c9.9`"));
    decide(&run, json!({})).refused(400, None);
    decide("r-none", json!({"solve/c1.1": true})).refused(404, Some("not_found"));
    let calls = endpoint.calls();
    assert_eq!(decide(&run, json!({"solve/c1.1": true})).status, 202);
    wait_until("the run has answered", || folder.trace(&run).summary().answer.as_deref() == Some("51"));
    assert_eq!(endpoint.calls(), calls + 1, "what was asked is not asked again");
    decide(&run, json!({"solve/c1.1": true})).refused(409, None);
    // The run of a command goes on here where the models are the same, and not with others.
    folder.lemon(&["run", "What is 17 * 3?", "--spec", "teams/pair.yaml", "-q"]).code(1);
    let run = folder.runs()[0]["run_id"].as_str().unwrap().to_owned();
    assert_eq!(decide(&run, json!({"solve/c1.1": false})).status, 202);
    wait_until("the run has answered", || folder.trace(&run).summary().answer.as_deref() == Some("51"));
    folder.lemon(&["run", "And 17 * 3?", "--spec", "teams/pair.yaml", "-q", "--model", "another"]).code(1);
    let run = folder.runs()[0]["run_id"].as_str().unwrap().to_owned();
    decide(&run, json!({"solve/c1.1": true})).refused(409, None);
}

#[test]
fn a_call_that_waits_has_buttons_on_both_pages() {
    let Some(browser) = Browser::open(1400, 900) else { return };
    let (_endpoint, folder) = with_approval();
    let served = Served::start(&folder, &[]);
    browser.go(&page(&served, "/ask?team=pair"));
    let run = ask(&browser, "What is 17 * 3?");
    assert!(browser.text().contains("solve wants to call calculator"), "{}", browser.text());
    browser.press(".approval button[value=approve]");
    browser.wait("document.querySelector('.turn .status').textContent === 'Answered'");
    assert!(browser.run("return document.querySelector('.turn .result').innerText").as_str().unwrap().contains("51"));
    assert_eq!(folder.trace(&run).summary().answer.as_deref(), Some("51"));
    let run = ask(&browser, "And what is 17 * 3?");
    browser.go(&page(&served, &format!("/runs/{run}")));
    browser.press(".approval button[value=deny]");
    browser
        .wait("!document.querySelector('.approval') && document.querySelector('.reason').textContent === 'answered'");
    assert_no_complaints(&browser);
}

#[test]
fn a_team_is_measured_in_the_editor() {
    let folder = Folder::new();
    let served = Served::start(&folder, &["--workers", "bundled"]);
    let measure = |text: &str, set: &str| served.post("/api/teams/credit", &json!({"text": text, "set": set}));
    let found = measure(TEAM, "multiarith").ok().json();
    let picture = found["picture"].as_str().unwrap();
    assert!(picture.starts_with("<svg") && picture.contains(">two<") && !picture.contains("<style"), "{picture}");
    assert!(found["told"].as_str().unwrap().contains("no model was asked") && found["advice"].is_array(), "{found}");
    measure(TEAM, "all").refused(400, None);
    assert!(
        measure("agents: nothing", "multiarith").refused(400, None)["message"].as_str().unwrap().contains("not valid")
    );
    assert!(folder.runs().is_empty(), "what is measured is no run");
    // The page has what it needs.
    assert!(served.get("/teams/edit").ok().body.contains("<option>multiarith</option>"));
}

#[test]
fn nothing_that_a_model_says_runs_or_leaves_the_page() {
    let Some(browser) = Browser::open(1400, 900) else { return };
    let endpoint = FakeEndpoint::start(Behaviour::text(HOSTILE)).unwrap();
    let hostile_id = "<script>window.owned = 7</script>";
    let folder = Folder::with_endpoint(&endpoint, "").file("teams/pair.yaml", TEAM);
    let served = Served::start(&folder, &[]);
    browser.go(&page(&served, "/ask?team=pair"));
    let run = ask(&browser, &format!("What is it? {hostile_id}"));
    browser.run("document.querySelectorAll('details').forEach((it) => { it.open = true; })");
    let again = ask(&browser, "And again?");
    let pages = [
        "/ask".to_owned(),
        format!("/runs/{run}"),
        format!("/runs/compare?a={run}&b={again}"),
        format!("/runs/compare?a={run}"),
        "/runs?q=%3Cscript%3E".to_owned(),
        format!("/teams/edit?run={run}"),
        "/runs/%3Cb%20onload=1%3E".to_owned(),
    ];
    for path in &pages {
        browser.go(&page(&served, path));
        browser.wait("document.readyState === 'complete'");
        std::thread::sleep(std::time::Duration::from_millis(300));
        browser.run("document.querySelectorAll('details').forEach((it) => { it.open = true; })");
        // A link of a reply can be pressed by a person, and still does nothing but go to an address of the web.
        let links = browser.run(
            "return [...document.querySelectorAll('.md a')].filter((it) => !/^(https?|mailto):$/.test(it.protocol)).length",
        );
        assert_eq!(links, 0, "{path}");
        let inside = browser.run(
            "return document.querySelectorAll('main img, main iframe, main script:not([type]), main style, main [onclick], \
             main [onerror], main [onload], base').length",
        );
        assert_eq!(inside, 0, "{path}");
        assert_eq!(browser.run("return window.owned ?? null"), Value::Null, "{path}");
        assert_eq!(browser.run("return getComputedStyle(document.body).display === 'none'"), false, "{path}");
        let loaded = browser.run(
            "return performance.getEntriesByType('resource').map((it) => it.name).filter((it) => !it.startsWith(location.origin))",
        );
        assert_eq!(loaded, json!([]), "{path}");
        let complaints = browser.complaints();
        // The page of a run that does not exist is a page with its status; nothing else is to complain about.
        let unexpected: Vec<&String> = complaints.iter().filter(|it| !it.contains("404")).collect();
        assert!(unexpected.is_empty(), "{path}: {unexpected:?}");
    }
    // What a policy forbids is forbidden by it, not only by the care of the pages.
    browser.go(&page(&served, "/ask"));
    let refused = browser
        .run("try { document.body.innerHTML = '<b>x</b>'; return 'written'; } catch (error) { return error.name; }");
    assert_eq!(refused, "TypeError");
    let inline = "const it = document.createElement('script'); try { it.text = 'window.owned = 8'; } catch { return null; } \
                  document.body.append(it); return window.owned ?? null";
    assert_eq!(browser.run(inline), Value::Null);
}

#[test]
fn pages_fit_a_desk_and_a_phone_in_light_and_dark() {
    let Some(browser) = Browser::open(1400, 900) else { return };
    let folder = Folder::with_pair().file("teams/pair.yaml", TEAM);
    let served = Served::start(&folder, &["--workers", "scripted", "--script", "script.toml"]);
    let asked = json!({"question": "What is 2 + 2?", "team": {"kind": "file", "name": "pair"}});
    let run = served.post("/api/runs", &asked).json()["run_id"].as_str().unwrap().to_owned();
    wait_until("the run ends", || served.get("/runs?end=answered").body.contains(&run));
    let of_run = format!("/runs/{run}");
    let pages = PAGES.iter().copied().chain([(of_run.as_str(), "What is 2 + 2?")]);
    for (path, expected) in pages {
        for (width, height) in [(1400, 900), (400, 860)] {
            browser.size(width, height);
            for scheme in ["light", "dark"] {
                browser.prefer(scheme);
                browser.go(&page(&served, path));
                browser.wait(&format!("document.body.innerText.includes({})", Value::from(expected)));
                let paper = browser.run("return getComputedStyle(document.body).backgroundColor");
                let is_dark = paper.as_str().unwrap().contains("22, 24, 28");
                assert_eq!(is_dark, scheme == "dark", "{path}: {paper}");
                let wide =
                    browser.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth");
                assert_eq!(wide, 0, "{path} at {width}");
                // Every entry of the navigation can be seen and pressed.
                let seen = "return [...document.querySelectorAll('.app-nav a')].every((it) => { const box = it.getBoundingClientRect(); \
                            return box.width > 30 && box.left >= 0 && box.right <= innerWidth && box.top >= 0 && box.bottom <= innerHeight; })";
                assert_eq!(browser.run(seen), true, "{path} at {width}");
            }
        }
    }
    assert_no_complaints(&browser);
    // By keyboard alone: past the navigation to the page, and to an answer.
    browser.size(1400, 900);
    browser.go(&page(&served, "/runs"));
    browser.type_into("body", "\u{e004}");
    assert_eq!(browser.run("return document.activeElement.textContent"), "Skip to content");
    browser.go(&page(&served, "/ask"));
    ask(&browser, "What is 3 + 3?");
    assert!(browser.text().contains("68"));
}

/// What axe-core finds on the page that is severe, as text.
fn severe_faults(browser: &Browser, axe: &str) -> String {
    browser.run(axe);
    browser.run(
        "window.found = null; axe.run(document, { resultTypes: ['violations'] }).then((it) => { window.found = it.violations; }, \
         (error) => { window.found = [{ id: String(error), impact: 'critical', nodes: [] }]; })",
    );
    browser.wait("window.found !== null");
    let found = "return JSON.stringify(window.found.filter((it) => ['serious', 'critical'].includes(it.impact)).map((it) => \
                 [it.id, ...it.nodes.slice(0, 3).map((node) => node.html.slice(0, 200))]))";
    browser.run(found).as_str().unwrap().to_owned()
}

/// Needs the npm package axe-core beside the published clients: see `cargo xtask clients`.
#[test]
fn a_screen_reader_finds_its_way() {
    let Some(npm) = std::env::var_os("LEMON_CLIENTS_NPM").map(std::path::PathBuf::from) else {
        println!("skipped: LEMON_CLIENTS_NPM is not set; see `cargo xtask clients`");
        return;
    };
    let axe = std::fs::read_to_string(npm.join("node_modules/axe-core/axe.min.js")).unwrap();
    let Some(browser) = Browser::open(1400, 900) else { return };
    let (_endpoint, folder) = with_approval();
    let folder = folder.file("teams/two.yaml", TEAM.replace("id: one", "id: first").replace("[one]", "[first]"));
    let eval = ["eval", "--set", "multiarith", "--limit", "4", "--methods", "vanilla,sc-cot", "-q", "--out"];
    for name in ["results/a", "results/b"] {
        folder.lemon(&[&eval[..], &[name]].concat()).ok();
    }
    let train = ["train", "--recipe", "quick", "--steps", "2", "-q", "--out"];
    for name in ["results/t", "results/u"] {
        folder.lemon(&[&train[..], &[name]].concat()).ok();
    }
    let served = Served::start(&folder, &[]);
    let asked = json!({"question": "What is 17 * 3?", "team": {"kind": "file", "name": "pair"}});
    let start = || served.post("/api/runs", &asked).json()["run_id"].as_str().unwrap().to_owned();
    let (waits, answered) = (start(), start());
    wait_until("both wait", || [&waits, &answered].iter().all(|run| folder.trace(run).summary().stop_reason.is_some()));
    served.post(&format!("/api/runs/{answered}/decide"), &json!({"decisions": {"solve/c1.1": true}}));
    wait_until("one has answered", || folder.trace(&answered).summary().answer.is_some());
    let more = [
        format!("/runs/{waits}"),
        format!("/runs/{answered}"),
        format!("/runs/compare?a={answered}&b={waits}"),
        format!("/ask?run={waits}"),
        "/teams/edit?name=two".to_owned(),
        "/evaluations/a".to_owned(),
        "/evaluations/compare?e=a&e=b".to_owned(),
        "/trainings/t".to_owned(),
        "/trainings/compare?t=t&t=u".to_owned(),
    ];
    let mut faults = Vec::new();
    for path in PAGES.iter().map(|(path, _)| (*path).to_owned()).chain(more) {
        for (width, height) in [(1400, 900), (400, 860)] {
            browser.size(width, height);
            for scheme in ["light", "dark"] {
                browser.prefer(scheme);
                browser.go(&page(&served, &path));
                browser.wait("document.readyState === 'complete' && !document.querySelector('[aria-busy=true]')");
                browser.wait("!document.querySelector('#verdict') || document.querySelector('#graph svg')");
                let found = severe_faults(&browser, &axe);
                if found != "[]" {
                    faults.push(format!("{path} {width} {scheme}: {found}"));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}
