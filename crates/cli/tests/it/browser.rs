//! A real browser, driven over the WebDriver protocol: Chromium and its driver, where they are installed.

use crate::common::{PATIENCE, send_signal};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The property under which the protocol names an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A window of a browser. Dropping it ends the browser.
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    /// What the browser keeps; it goes with it.
    _profile: TempDir,
}

/// The first of these programs that is installed.
fn program(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name))).find(|path| path.is_file())
}

impl Browser {
    /// Opens a window of this size. `None`: there is no browser here, and the test is skipped.
    #[track_caller]
    pub fn open(width: u32, height: u32) -> Option<Browser> {
        let chromium = program(&["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]);
        let (Some(chromium), Some(driver)) = (chromium, program(&["chromedriver"])) else {
            println!("skipped: Chromium and ChromeDriver are not installed");
            return None;
        };
        let profile = tempfile::Builder::new().prefix("lemon-browser-").tempdir().unwrap();
        let mut driver = Command::new(driver)
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines().map_while(Result::ok);
        let port = lines
            .find_map(|line| line.split_once(" successfully on port ")?.1.trim_end_matches('.').parse().ok())
            .unwrap();
        // What it says later is not read, and must not stop it.
        std::thread::spawn(move || lines.for_each(drop));
        let flags = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            &format!("--user-data-dir={}", profile.path().display()),
            &format!("--window-size={width},{height}"),
        ]
        .map(str::to_owned);
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": {"binary": chromium, "args": flags},
            "goog:loggingPrefs": {"browser": "ALL"}, "unhandledPromptBehavior": "accept",
        }}});
        let mut browser = Browser { driver, port, session: String::new(), _profile: profile };
        let opened = browser.ask("POST", "/session", &wanted);
        browser.session = opened["sessionId"].as_str().unwrap().to_owned();
        browser.size(width, height);
        Some(browser)
    }

    /// Makes the page this large, as a device of this size would show it.
    pub fn size(&self, width: u32, height: u32) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", metrics);
    }

    /// Makes the browser prefer a dark page, or a light one.
    pub fn prefer(&self, scheme: &str) {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.devtools("Emulation.setEmulatedMedia", features);
    }

    fn devtools(&self, command: &str, parameters: Value) {
        self.tell("POST", "/goog/cdp/execute", &json!({"cmd": command, "params": parameters}));
    }

    /// Goes to an address, and waits until the page is there.
    #[track_caller]
    pub fn go(&self, address: &str) {
        self.tell("POST", "/url", &json!({"url": address}));
    }

    /// What a script returns.
    #[track_caller]
    pub fn run(&self, script: &str) -> Value {
        self.tell("POST", "/execute/sync", &json!({"script": script, "args": []}))
    }

    /// The text of the page, as one reads it.
    #[track_caller]
    pub fn text(&self) -> String {
        self.run("return document.body.innerText").as_str().unwrap().to_owned()
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub fn wait(&self, expression: &str) {
        let began = Instant::now();
        let script = format!("try {{ return Boolean({expression}); }} catch {{ return false; }}");
        while self.run(&script) != json!(true) {
            if began.elapsed() > PATIENCE {
                panic!("never true: {expression}\n{}\n{:?}", self.text(), self.complaints());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Presses an element. It is scrolled to the middle before, as a person would: what stays at the edge of a page may cover it.
    #[track_caller]
    pub fn press(&self, selector: &str) {
        let element = self.find(selector);
        self.run(&format!("document.querySelector({}).scrollIntoView({{block: 'center'}})", json!(selector)));
        self.tell("POST", &format!("/element/{element}/click"), &json!({}));
    }

    /// Types into an element. `\u{e007}` is the key Enter.
    #[track_caller]
    pub fn type_into(&self, selector: &str, text: &str) {
        let element = self.find(selector);
        self.tell("POST", &format!("/element/{element}/value"), &json!({"text": text}));
    }

    #[track_caller]
    fn find(&self, selector: &str) -> String {
        let found = self.tell("POST", "/element", &json!({"using": "css selector", "value": selector}));
        found[ELEMENT].as_str().unwrap().to_owned()
    }

    /// Errors and warnings that the browser has written down since it was asked last.
    pub fn complaints(&self) -> Vec<String> {
        let log = self.tell("POST", "/se/log", &json!({"type": "browser"}));
        let entries = log.as_array().unwrap().iter();
        entries.filter(|it| it["level"] != "INFO").map(|it| it["message"].as_str().unwrap().to_owned()).collect()
    }

    #[track_caller]
    fn tell(&self, method: &str, path: &str, body: &Value) -> Value {
        self.ask(method, &format!("/session/{}{path}", self.session), body)
    }

    #[track_caller]
    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let response = self.exchange(method, path, body).unwrap();
        let value =
            serde_json::from_str::<Value>(&response).unwrap_or_else(|error| panic!("{error}: {response}"))["value"]
                .clone();
        assert!(value.get("error").is_none(), "{method} {path}: {value}");
        value
    }

    fn exchange(&self, method: &str, path: &str, body: &Value) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let body = body.to_string();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n",
            self.port,
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes())?;
        // The driver keeps the connection open: its answer is as long as it says.
        let mut reader = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            if let Some((_, value)) =
                line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            {
                length = value.trim().parse().map_err(std::io::Error::other)?;
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        String::from_utf8(body).map_err(std::io::Error::other)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ending the session ends the browser, also where a test has failed; then the driver.
        if let Err(error) = self.exchange("DELETE", &format!("/session/{}", self.session), &json!({})) {
            eprintln!("the session of the browser: {error}");
        }
        send_signal("TERM", &self.driver.id().to_string());
        if let Err(error) = self.driver.wait() {
            eprintln!("the driver of the browser: {error}");
        }
    }
}
