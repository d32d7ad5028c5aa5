//! The pages that commands leave behind: what they say, and that a browser shows them without a fault.

use crate::common::{Folder, finish, spawn};
use crate::eval::{report, rows};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A reply with everything: headings, code that is wide, a table that is wide, and hostile text.
const REPLY: &str = r##"[[reply]]
text = '''
## A plan

1. **Read** the file
2. Count its lines

```python
def count(path): return sum(1 for line in open(path) if line.strip() and not line.startswith("#") and len(line) < 10_000)
```

| step | minutes | what is needed for it | who does it | when |
|------|--------:|-----------------------|-------------|------|
| read | 5 | AVeryLongWordThatDoesNotBreakAnywhereBecauseItHasNoSpacesInIt | someone | Monday |

<script>document.title = "owned"</script> [here](javascript:alert(1)) [there](https://example.org/x)
'''
"##;

fn run(folder: &Folder, task: &str) -> PathBuf {
    let args = ["run", task, "--workers", "scripted", "--script", "script.toml", "--spec", "pair.yaml"];
    let ran = folder.lemon(&args).ok();
    let page = ran.stderr.split("page: ").nth(1).unwrap_or_else(|| panic!("{}", ran.stderr));
    folder.path(page.lines().next().unwrap().trim())
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn runs_are_listed_beside_their_pages() {
    let folder = Folder::with_pair();
    let first = run(&folder, "What is <first>?");
    let second = run(&folder, "And the second?");
    let list = read(&second.with_file_name("index.html"));
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    assert!(list.contains("2 runs, newest first"), "{list}");
    let at = |page: &Path| list.find(&format!("<a href=\"{}\">", name(page))).unwrap();
    assert!(at(&second) < at(&first), "newest first");
    assert!(list.contains("What is &lt;first&gt;?") && !list.contains("<first>"));
    assert!(list.contains("<p class=\"got\">68</p>") && list.contains("answered</span> · "), "{list}");
    assert!(read(&first).contains("<a href=\"index.html\">All runs</a>"));

    // Nothing is left behind but pages; a run without a page has no link, and tasks of a batch are not in the list.
    let names = std::fs::read_dir(first.parent().unwrap()).unwrap().map(|entry| name(&entry.unwrap().path()));
    assert!(names.into_iter().all(|name| name.ends_with(".html")));
    std::fs::remove_file(&first).unwrap();
    let folder = folder.file("tasks.jsonl", "{\"question\": \"Of a batch?\"}\n");
    let batch =
        ["run", "--tasks", "tasks.jsonl", "--workers", "scripted", "--script", "script.toml", "--spec", "pair.yaml"];
    folder.lemon(&batch).ok();
    let third = run(&folder, "A third?");
    let list = read(&third.with_file_name("index.html"));
    assert!(list.contains("3 runs") && !list.contains("Of a batch?"));
    assert!(list.contains("<p class=\"task\">What is &lt;first&gt;?</p>"));
}

/// A page is replaced, and what a link in its place points at is not touched.
#[cfg(unix)]
#[test]
fn a_link_in_the_place_of_the_list_is_not_followed() {
    let folder = Folder::with_pair().file("precious", "mine").file(".lemon/pages/empty", "");
    std::os::unix::fs::symlink(folder.path("precious"), folder.path(".lemon/pages/index.html")).unwrap();
    run(&folder, "What is it?");
    assert_eq!(folder.read("precious"), "mine");
    assert!(folder.read(".lemon/pages/index.html").contains("1 run, newest first"));
}

#[test]
fn an_evaluation_shows_questions_answers_and_replies() {
    let folder = Folder::new();
    let found = report(&folder, &["--set", "gsm8k", "--limit", "3", "--methods", "cot,sc-cot:3"]);
    let id = found["set_up"]["eval_id"].as_str().unwrap();
    let page = folder.read(&format!(".lemon/evals/{id}/report.html"));
    assert_eq!(page.matches("<details class=\"item\">").count(), 3);
    assert_eq!(page.matches("<details class=\"reply\"").count(), 3 * 2);
    for row in rows(&folder, &found) {
        let run = row["run_id"].as_str().unwrap();
        let trace = folder.trace(run);
        let question: String =
            trace.header.question.chars().take_while(|char| char.is_alphanumeric() || *char == ' ').collect();
        assert!(page.contains(question.trim_end()), "{question}");
        let of_run = folder.read(&format!(".lemon/evals/{id}/runs/{run}.html"));
        assert!(of_run.contains("<a href=\"../report.html\">The evaluation</a>"));
        assert!(page.contains(&format!("<a href=\"runs/{run}.html\">")));
    }
    assert!(page.contains("<h3>Expected answer</h3>") && !page.contains("Partial: "));
}

/// The first browser there is.
fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
    names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name))).find(|path| path.is_file())
}

/// Opens a page in a frame 400 pixels wide, presses its copy buttons, and writes down what became of it.
const FRAME: &str = r##"<!doctype html><title>waiting</title><iframe id="frame" width="400" height="900" src="PAGE"></iframe>
<script>
const frame = document.getElementById("frame");
frame.addEventListener("load", async () => {
  const { contentDocument: page, contentWindow: window } = frame;
  const copied = [];
  Object.defineProperty(window.navigator, "clipboard", { value: { writeText: async (text) => { copied.push(text); } } });
  const root = page.documentElement;
  page.querySelectorAll("details").forEach((details) => { details.open = true; });
  const buttons = [...page.querySelectorAll("header button.copy, section button.copy")].slice(0, 2);
  buttons.forEach((button) => button.click());
  await new Promise((done) => setTimeout(done, 100));
  const wide = [...page.querySelectorAll("body *")].filter((it) => it.getBoundingClientRect().right > root.clientWidth + 1
    && ![...function* () { for (let up = it.parentElement; up; up = up.parentElement) yield up; }()]
      .some((up) => window.getComputedStyle(up).overflowX !== "visible")).map((it) => it.tagName + "." + it.className);
  const result = document.createElement("pre");
  result.id = "result";
  result.textContent = JSON.stringify({
    title: page.title, scroll: root.scrollWidth, client: root.clientWidth, wide: wide.slice(0, 5), copied,
    said: buttons.map((button) => button.textContent), scripts: page.scripts.length,
  });
  document.body.append(result);
});
</script>"##;

/// What the browser found, and what it had to say.
fn browse(browser: &Path, folder: &Folder, page: &Path) -> (serde_json::Value, String) {
    let frame = folder.path("frame.html");
    std::fs::write(&frame, FRAME.replace("PAGE", &format!("file://{}", page.display()))).unwrap();
    let mut command = Command::new(browser);
    command.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]);
    command.args(["--enable-logging=stderr", "--virtual-time-budget=5000", "--dump-dom"]);
    command.arg(format!("--user-data-dir={}", folder.path("browser").display()));
    command.arg(format!("file://{}", frame.display())).stdin(Stdio::null());
    let ran = finish(&["in the browser"], spawn(&mut command));
    let (dom, log) = (ran.stdout, ran.stderr);
    let result = dom.split("<pre id=\"result\">").nth(1).and_then(|rest| rest.split("</pre>").next());
    let result = result.unwrap_or_else(|| panic!("no result:\n{dom}\n{log}"));
    let result = result.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    (serde_json::from_str(&result).unwrap(), log)
}

#[test]
fn pages_in_a_browser_on_a_phone() {
    let Some(browser) = chromium() else {
        println!("skipped: no Chromium is installed");
        return;
    };
    let folder = Folder::with_pair().file("script.toml", REPLY);
    let page = run(&folder, "Plan it, with AVeryLongWordThatDoesNotBreakAnywhereBecauseItHasNoSpacesInItAtAllReally");
    let found = report(&folder, &["--set", "gsm8k,mmlu", "--limit", "2", "--methods", "cot,sc-cot:3,complete"]);
    let id = found["set_up"]["eval_id"].as_str().unwrap();
    let evaluation = folder.path(&format!(".lemon/evals/{id}/report.html"));
    for path in [&page, &page.with_file_name("index.html"), &evaluation] {
        let (result, log) = browse(&browser, &folder, path);
        assert_eq!(result["scroll"], result["client"], "{}: {result}", path.display());
        assert_eq!(result["wide"], serde_json::json!([]), "{}: {result}", path.display());
        assert!(!result["title"].as_str().unwrap().contains("owned"));
        let complaints: Vec<&str> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
        assert!(complaints.is_empty(), "{}: {complaints:?}", path.display());
        if *path == page {
            let copied: Vec<&str> =
                result["copied"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
            assert!(
                copied[0].contains("## A plan") && copied[0].contains("<script>"),
                "the answer as written: {copied:?}"
            );
            assert!(copied[1].starts_with("def count(path)") && !copied[1].contains("```"), "{copied:?}");
            assert_eq!(result["said"], serde_json::json!(["Copied", "Copied"]));
            assert_eq!(result["scripts"], 1);
        }
    }
}
