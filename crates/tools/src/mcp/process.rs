//! An MCP server that LEMON starts: in a process group of its own, with a cleaned environment, killed at the end.

use crate::clean_line;
use crate::config::McpConfig;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

/// What a program needs to start at all. No other variable is inherited: ours may hold keys.
const INHERITED: [&str; 10] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ"];
/// Of what a server writes to standard error, the last so many bytes are kept.
const TAIL: usize = 600;

/// A started server. Dropping it kills its process group.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    child: Child,
    group: Option<rustix::process::Pid>,
    tail: Arc<Mutex<Vec<u8>>>,
    /// Reads what it writes to standard error.
    reader: Option<JoinHandle<()>>,
}

impl ServerProcess {
    /// Starts the program; its output and input are returned beside it.
    pub fn start(config: &McpConfig, folder: &Path) -> Result<(Self, ChildStdout, ChildStdin), String> {
        let (program, arguments) = config.command.split_first().ok_or("no program is named")?;
        let mut command = Command::new(program);
        command.args(arguments).env_clear();
        command.envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        for name in &config.pass_env {
            let value = std::env::var_os(name);
            command.env(name, value.ok_or_else(|| format!("`pass_env` names {name}, which is not set"))?);
        }
        command.envs(&config.env);
        command.current_dir(match &config.folder {
            Some(own) => folder.join(own),
            None if folder.as_os_str().is_empty() => Path::new(".").to_owned(),
            None => folder.to_owned(),
        });
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => format!("`{}` is not on the search path", clean_line(program, 100)),
            _ => format!("`{}` does not start: {error}", clean_line(program, 100)),
        })?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
        let (Some(output), Some(input), Some(errors)) = (child.stdout.take(), child.stdin.take(), child.stderr.take())
        else {
            return Err("the server has no pipes".to_owned());
        };
        let tail = Arc::new(Mutex::new(Vec::new()));
        let reader = Some(tokio::spawn(keep_tail(errors, tail.clone())));
        Ok((ServerProcess { child, group, tail, reader }, output, input))
    }

    /// Waits until the program has ended. A child that it leaves behind may hold its pipes open.
    pub async fn exited(&mut self) {
        if self.child.wait().await.is_err() {
            // Nothing is known of it: it does not count as ended.
            std::future::pending::<()>().await;
        }
    }

    /// Ends it, and says how it had ended, if it had, and what it last wrote to standard error.
    pub async fn end(&mut self) -> String {
        self.kill();
        let status = tokio::time::timeout(Duration::from_secs(2), self.child.wait()).await;
        // Reaped: the number may be given to another group now.
        self.group = None;
        let ended = match status {
            Ok(Ok(status)) => match status.code() {
                Some(code) => format!("the program ended with status {code}"),
                None => String::new(),
            },
            _ => String::new(),
        };
        if let Some(reader) = self.reader.take() {
            // Its last words may still be in the pipe. Where they do not end in time, those that were read are told.
            let _ = tokio::time::timeout(Duration::from_secs(1), reader).await;
        }
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        let said = clean_line(&String::from_utf8_lossy(&tail), TAIL);
        match (ended.is_empty(), said.is_empty()) {
            (_, true) => ended,
            (true, false) => format!("it wrote: {said}"),
            (false, false) => format!("{ended}; it wrote: {said}"),
        }
    }

    fn kill(&self) {
        if let Some(group) = self.group {
            // It fails only where the group is gone already.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

async fn keep_tail(mut errors: ChildStderr, tail: Arc<Mutex<Vec<u8>>>) {
    let mut buffer = [0; 4 << 10];
    // Read to the end, so that the server never blocks on it. An error is an end.
    while let Ok(read @ 1..) = errors.read(&mut buffer).await {
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend_from_slice(&buffer[..read]);
        let surplus = tail.len().saturating_sub(TAIL);
        tail.drain(..surplus);
    }
}
