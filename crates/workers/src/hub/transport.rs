//! Requests to a hub. Redirects are followed here, because the shared client never does: the token goes to the hub that was
//! asked and to no other origin (scheme, host and port), and what is encrypted stays so.

use crate::error::WorkersError;
use lemon_exec::worker::{http_client, http_error};
use reqwest::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, HeaderMap, HeaderValue, LOCATION, RANGE};
use reqwest::{Client, Response, StatusCode, Url};
use std::time::Duration;
use tokio::runtime::Runtime;

/// How long the hub may be silent.
const SILENCE: Duration = Duration::from_secs(30);
/// How often one request may be sent on to another address.
const MOST_REDIRECTS: usize = 10;
/// The most bytes of a list of files.
const MOST_LISTED: usize = 10 << 20;

/// A way to a hub.
pub struct Transport {
    client: Client,
    runtime: Runtime,
    hub: Url,
    token: Option<HeaderValue>,
}

/// An answer, and what the hub itself said on the way to it.
pub struct HubAnswer {
    response: Response,
    /// The checksum that the hub's headers name, as it stands there. It is not to be trusted.
    pub etag: Option<String>,
    /// The commit that the hub's headers name, as it stands there. It is not to be trusted.
    pub commit: Option<String>,
}

/// Why an attempt came to nothing.
pub struct HubFailure {
    pub fact: String,
    pub hint: Option<String>,
    /// Whether another attempt may do better.
    pub passing: bool,
}

impl HubFailure {
    pub fn lasting(fact: impl Into<String>) -> Self {
        HubFailure { fact: fact.into(), hint: None, passing: false }
    }

    pub fn passing(fact: impl Into<String>) -> Self {
        HubFailure { passing: true, ..HubFailure::lasting(fact) }
    }

    /// The hub broke its own protocol.
    pub fn senseless(fact: &str) -> Self {
        HubFailure::lasting(format!("the hub sent an answer that makes no sense: {fact}"))
    }
}

impl Transport {
    /// A way to the hub at this address.
    ///
    /// # Errors
    /// It is no address, the token cannot be sent, or there is no HTTP client.
    pub fn new(hub: &str, token: Option<&str>) -> Result<Self, WorkersError> {
        let no_client = |fact: String| WorkersError::new(format!("no client for the hub: {fact}"));
        let address =
            Url::parse(hub).map_err(|error| WorkersError::new(format!("{hub:?} is no address of a hub: {error}")))?;
        let header = |token| {
            let mut header = HeaderValue::try_from(format!("Bearer {token}"))
                .map_err(|_| WorkersError::new("HF_TOKEN holds characters that no token has"))?;
            header.set_sensitive(true);
            Ok::<_, WorkersError>(header)
        };
        Ok(Transport {
            client: http_client().map_err(no_client)?,
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|error| no_client(error.to_string()))?,
            hub: address,
            token: token.map(header).transpose()?,
        })
    }

    /// An address at the hub: these parts of a path after whatever its own address has, and a query.
    pub fn address(&self, parts: &[&str], query: Option<&str>) -> Url {
        let mut address = self.hub.clone();
        // `http:` addresses always have a path.
        if let Ok(mut path) = address.path_segments_mut() {
            path.pop_if_empty().extend(parts);
        }
        address.set_query(query);
        address
    }

    /// Asks for an address at the hub, from byte `from` on, and `to` the last one wanted.
    ///
    /// # Errors
    /// The hub cannot be reached, or leads astray. A status is no error.
    pub fn get(&self, address: Url, range: Option<(u64, Option<u64>)>) -> Result<HubAnswer, HubFailure> {
        self.runtime.block_on(self.follow(address, range))
    }

    async fn follow(&self, mut address: Url, range: Option<(u64, Option<u64>)>) -> Result<HubAnswer, HubFailure> {
        let home = self.hub.origin();
        let (mut at_home, mut etag, mut linked, mut commit) = (address.origin() == home, None, None, None);
        for _ in 0..=MOST_REDIRECTS {
            let token = self.token.as_ref().filter(|_| at_home);
            let response = self.send(address.clone(), token, range).await?;
            if at_home {
                let header = |name: &str| text(response.headers(), name);
                (etag, linked) = (header("etag").or(etag), linked.or_else(|| header("x-linked-etag")));
                commit = commit.or_else(|| header("x-repo-commit"));
            }
            let Some(next) = redirect(&response)? else {
                return Ok(HubAnswer { response, etag: linked.or(etag), commit });
            };
            if address.scheme() == "https" && next.scheme() != "https" {
                let host = next.host_str().unwrap_or_default();
                return Err(HubFailure::lasting(format!("the hub sends us on to {host} without encryption")));
            }
            // Once away it stays away: the server that sends us back may have chosen the path.
            at_home &= next.origin() == home;
            address = next;
        }
        Err(HubFailure::lasting("the hub sends us from one address to the next"))
    }

    async fn send(
        &self,
        address: Url,
        token: Option<&HeaderValue>,
        range: Option<(u64, Option<u64>)>,
    ) -> Result<Response, HubFailure> {
        let unreachable = |error: reqwest::Error| {
            let why = http_error(&error);
            // A certificate that is refused now is refused in a moment, too.
            let passing = !error.is_builder() && !why.contains("certificate");
            HubFailure { passing, ..HubFailure::lasting(format!("the hub cannot be reached: {why}")) }
        };
        let mut request = self.client.get(address).build().map_err(unreachable)?;
        if let Some(token) = token {
            request.headers_mut().insert(AUTHORIZATION, token.clone());
        }
        if let Some((from, to)) = range {
            let to = to.map(|to| to.to_string()).unwrap_or_default();
            // Digits are always a value.
            if let Ok(value) = HeaderValue::try_from(format!("bytes={from}-{to}")) {
                request.headers_mut().insert(RANGE, value);
            }
        }
        in_time(self.client.execute(request)).await?.map_err(unreachable)
    }

    /// Reads a list of files.
    ///
    /// # Errors
    /// It breaks off, or is too long for one.
    pub fn list(&self, mut answer: HubAnswer) -> Result<Vec<u8>, HubFailure> {
        let mut body = Vec::new();
        let received = self.receive(&mut answer, |piece| {
            if body.len() + piece.len() > MOST_LISTED {
                return Err(HubFailure::lasting(format!("the list of files is longer than {MOST_LISTED} bytes")));
            }
            body.extend_from_slice(piece);
            Ok(())
        });
        match received {
            Err(failure) if failure.passing => {
                Err(HubFailure { fact: format!("the list of files broke off: {}", failure.fact), ..failure })
            }
            other => other.map(|()| body),
        }
    }

    /// Takes a body piece by piece.
    ///
    /// # Errors
    /// It breaks off, the hub is silent for too long, or `take` fails.
    pub fn receive(
        &self,
        answer: &mut HubAnswer,
        mut take: impl FnMut(&[u8]) -> Result<(), HubFailure>,
    ) -> Result<(), HubFailure> {
        let broken = |error| HubFailure::passing(http_error(&error));
        self.runtime.block_on(async {
            while let Some(piece) = in_time(answer.response.chunk()).await?.map_err(broken)? {
                take(&piece)?;
            }
            Ok(())
        })
    }
}

impl HubAnswer {
    pub fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// Where in the file the body begins, if it is a part of it.
    pub fn begins_at(&self) -> Option<u64> {
        let range = text(self.response.headers(), CONTENT_RANGE.as_str())?;
        range.trim().strip_prefix("bytes ")?.split_once('-')?.0.parse().ok()
    }

    /// How long the whole file is.
    pub fn whole_length(&self) -> Option<u64> {
        let headers = self.response.headers();
        match self.response.status() {
            StatusCode::PARTIAL_CONTENT => {
                text(headers, CONTENT_RANGE.as_str())?.rsplit_once('/')?.1.trim().parse().ok()
            }
            _ => text(headers, CONTENT_LENGTH.as_str())?.trim().parse().ok(),
        }
    }
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    // What is not visible ASCII is no value that could be of use.
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

/// Where an answer sends us.
fn redirect(response: &Response) -> Result<Option<Url>, HubFailure> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let location = text(response.headers(), LOCATION.as_str());
    let next = location.and_then(|location| response.url().join(&location).ok());
    match next.filter(|next| matches!(next.scheme(), "http" | "https")) {
        Some(next) => Ok(Some(next)),
        None => Err(HubFailure::senseless("a redirect without an address")),
    }
}

async fn in_time<T>(step: impl Future<Output = T>) -> Result<T, HubFailure> {
    let silent = |_| HubFailure::passing(format!("the hub was silent for {} s", SILENCE.as_secs()));
    tokio::time::timeout(SILENCE, step).await.map_err(silent)
}
