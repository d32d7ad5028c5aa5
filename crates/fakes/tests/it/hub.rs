//! The fake hub, as a client sees it on the wire.

use crate::client::client;
use lemon_fakes::{FakeHub, HubFile, Sent, Trouble};
use reqwest::Response;
use serde_json::{Value, json};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// One small file and one large one, `0123456789` each.
fn hub() -> FakeHub {
    let file =
        |name: &str, digits| HubFile { name: name.into(), content: b"0123456789".to_vec(), sum: "a".repeat(digits) };
    FakeHub::start("owner/name", COMMIT, vec![file("small", 40), file("large", 64)]).unwrap()
}

async fn get(url: &str, range: &str) -> Response {
    client().get(url).header("range", range).send().await.unwrap()
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

#[tokio::test]
async fn what_the_repository_holds() {
    let hub = hub();
    let list = async |revision: &str| {
        let reply = get(&format!("{}/api/models/owner/name/revision/{revision}", hub.url()), "").await;
        (reply.status().as_u16(), serde_json::from_str::<Value>(&reply.text().await.unwrap()).unwrap())
    };
    let small = json!({"rfilename": "small", "size": 10, "blobId": "a".repeat(40)});
    let large = json!({"rfilename": "large", "size": 10, "lfs": {"sha256": "a".repeat(64), "size": 10}});
    let all = (200, json!({"id": "owner/name", "sha": COMMIT, "siblings": [small, large]}));
    assert_eq!(list("main").await, all);
    assert_eq!(list(COMMIT).await, all);
    assert_eq!(list("other").await.0, 404);
    assert_eq!(hub.requests(), 3);
}

/// A large file is elsewhere, and its checksum is told before.
#[tokio::test]
async fn files_and_ranges() {
    let hub = hub();
    let large = get(&format!("{}/owner/name/resolve/main/large", hub.url()), "bytes=0-0").await;
    assert_eq!((large.status().as_u16(), header(&large, "x-linked-etag")), (302, &*format!("\"{}\"", "a".repeat(64))));
    let elsewhere = header(&large, "location").to_owned();
    assert_ne!(header(&get(&elsewhere, "bytes=0-0").await, "etag"), header(&large, "x-linked-etag"));
    for url in [format!("{}/owner/name/resolve/{COMMIT}/small", hub.url()), elsewhere] {
        let check = async |range: &str, status: u16, content_range: &str, content: &str| {
            let reply = get(&url, range).await;
            assert_eq!((reply.status().as_u16(), header(&reply, "content-range")), (status, content_range), "{range}");
            assert_eq!(reply.text().await.unwrap(), content, "{range}");
        };
        check("bytes=0-0", 206, "bytes 0-0/10", "0").await;
        check("bytes=4-", 206, "bytes 4-9/10", "456789").await;
        check("bytes=4-5", 206, "bytes 4-5/10", "45").await;
        assert_eq!(get(&url, "bytes=10-").await.status(), 416);
    }
    let sent = |name: &str, from, bytes| Sent { name: name.into(), from, bytes };
    assert_eq!(hub.sent(), [sent("small", 4, 6), sent("small", 4, 2), sent("large", 4, 6), sent("large", 4, 2)]);
}

#[tokio::test]
async fn troubles_happen_once() {
    let hub = hub();
    let url = format!("{}/owner/name/resolve/main/small", hub.url());
    [Trouble::Cut(3), Trouble::Corrupt, Trouble::Status(503)]
        .into_iter()
        .for_each(|trouble| hub.trouble("small", trouble));
    assert_eq!(get(&url, "bytes=0-0").await.text().await.unwrap(), "0", "a look is no transfer");
    assert!(get(&url, "bytes=0-").await.text().await.is_err());
    assert_eq!(get(&url, "bytes=0-").await.text().await.unwrap(), "1123456789");
    assert_eq!(get(&url, "bytes=0-").await.status(), 503);
    assert_eq!(get(&url, "bytes=0-").await.text().await.unwrap(), "0123456789");
    hub.require_token("secret");
    assert_eq!(get(&url, "bytes=0-").await.status(), 401);
    assert_eq!(client().get(&url).bearer_auth("secret").send().await.unwrap().status(), 200);
}
