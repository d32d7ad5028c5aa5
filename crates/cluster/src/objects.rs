//! What is too large for a message, by the hash of its content: written once, read once by each worker.

use crate::error::ClusterError;
use crate::link::Link;
use crate::node::{Sessions, ask_session};
use crate::wire::{Answer, Ask, OBJECT_HEADER};
use async_nats::HeaderMap;
use async_nats::jetstream::object_store::ObjectMetadata;
use bytes::Bytes;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Objects larger than this are refused: they would not fit into the memory of a worker.
const MOST_BYTES: usize = 8 << 30;
/// Bytes of the pieces that objects are kept in.
const PIECE: usize = 128 * 1024;
/// Bytes that the headers of a message may take.
const HEADERS: usize = 4096;

/// Puts objects on the server and gets them from there.
pub struct Blobs {
    link: Link,
    /// Those that are known to be there.
    known: Mutex<HashSet<String>>,
    /// Those that this process answers for: it puts them back where the server has lost them.
    kept: Mutex<HashMap<String, Kept>>,
    /// Which coordinator answers for what is read here.
    owner: Option<(Arc<Sessions>, String)>,
}

/// What an object can be made of again.
#[derive(Clone)]
enum Kept {
    Content(Bytes),
    File(PathBuf),
}

impl Blobs {
    /// Objects of this project.
    pub fn new(link: &Link) -> Self {
        Blobs { link: link.clone(), known: Mutex::default(), kept: Mutex::default(), owner: None }
    }

    /// Objects of a coordinator: it is asked to put back what is missing.
    pub(crate) fn of(sessions: &Arc<Sessions>, session: &str) -> Self {
        Blobs { owner: Some((sessions.clone(), session.to_owned())), ..Blobs::new(sessions.link()) }
    }

    /// Puts an object there, unless it is there already, and says the name it goes by: the hash of its content. As long as this
    /// value lives, the object is put back when a worker misses it.
    ///
    /// # Errors
    /// The server does not take it.
    pub async fn put(&self, content: &[u8]) -> Result<String, ClusterError> {
        let name = self.store(content).await?;
        self.kept().entry(name.clone()).or_insert_with(|| Kept::Content(Bytes::copy_from_slice(content)));
        Ok(name)
    }

    /// The same for an object that is not put back.
    async fn store(&self, content: &[u8]) -> Result<String, ClusterError> {
        let name = blake3::hash(content).to_hex().to_string();
        if self.known().contains(&name) {
            return Ok(name);
        }
        let store = self.link.objects().await?;
        let there = store.info(&name).await.is_ok_and(|info| info.size == content.len() && !info.deleted);
        if !there {
            let failed = |error: &dyn std::fmt::Display| failed(&name, error);
            store.put(self.metadata(&name), &mut &content[..]).await.map_err(|error| failed(&error))?;
        }
        self.known().insert(name.clone());
        Ok(name)
    }

    /// As [`Blobs::put`], for a file that may not fit into memory.
    ///
    /// # Errors
    /// The file cannot be read, or the server does not take it.
    pub async fn put_file(&self, path: &Path) -> Result<String, ClusterError> {
        let unread = |error: std::io::Error| failed(&path.display().to_string(), &error);
        let (file, hashed) = (path.to_owned(), path.to_owned());
        let hash = tokio::task::spawn_blocking(move || {
            let mut hasher = blake3::Hasher::new();
            std::io::copy(&mut std::fs::File::open(hashed)?, &mut hasher)?;
            Ok(hasher.finalize().to_hex().to_string())
        });
        let name = hash.await.map_err(|error| failed(&path.display().to_string(), &error))?.map_err(unread)?;
        let store = self.link.objects().await?;
        let there = store.info(&name).await.is_ok_and(|info| !info.deleted);
        if !there {
            let mut open = tokio::fs::File::open(&file).await.map_err(unread)?;
            store.put(self.metadata(&name), &mut open).await.map_err(|error| failed(&name, &error))?;
        }
        self.kept().insert(name.clone(), Kept::File(file));
        Ok(name)
    }

    /// Puts an object back that the server has lost. `false`: this process does not have it.
    ///
    /// # Errors
    /// The server does not take it, or its file is another one now.
    pub(crate) async fn put_back(&self, name: &str) -> Result<bool, ClusterError> {
        let Some(kept) = self.kept().get(name).cloned() else { return Ok(false) };
        self.known().remove(name);
        let put = match kept {
            Kept::Content(content) => self.store(&content).await?,
            Kept::File(path) => self.put_file(&path).await?,
        };
        match put == name {
            true => Ok(true),
            false => Err(failed(name, &"its file has changed since it was sent")),
        }
    }

    /// Whether the coordinator of a missing object has put it back.
    async fn is_put_back(&self, name: &str) -> bool {
        let Some((sessions, session)) = &self.owner else { return false };
        let ask = Ask::Lost { object: name.to_owned() };
        // Boxed, because answers may be objects too; those have no owner, so that this ends.
        let asked = Box::pin(ask_session(sessions, session, &ask));
        matches!(asked.await, Ok(Answer::Done))
    }

    /// Writes the object of this name to a file, which appears whole.
    ///
    /// # Errors
    /// It is not there, is something else, or the file cannot be written.
    pub async fn get_file(&self, name: &str, path: &Path) -> Result<(), ClusterError> {
        match self.read_to_file(name, path).await {
            Err(_) if self.is_put_back(name).await => self.read_to_file(name, path).await,
            read => read,
        }
    }

    async fn read_to_file(&self, name: &str, path: &Path) -> Result<(), ClusterError> {
        let store = self.link.objects().await?;
        let mut object = store.get(name).await.map_err(|error| failed(name, &error))?;
        let unwritten = |error: std::io::Error| failed(name, &format!("{}: {error}", path.display()));
        let part = path.with_extension(format!("part-{}", lemon_exec::fresh_id()));
        let mut file = tokio::fs::File::create(&part).await.map_err(unwritten)?;
        let mut hasher = blake3::Hasher::new();
        let mut piece = vec![0; 128 * 1024];
        loop {
            let read = object.read(&mut piece).await.map_err(|error| failed(name, &error))?;
            let Some(piece) = piece.get(..read).filter(|piece| !piece.is_empty()) else { break };
            hasher.update(piece);
            file.write_all(piece).await.map_err(unwritten)?;
        }
        file.sync_all().await.map_err(unwritten)?;
        if hasher.finalize().to_hex().as_str() != name {
            // What is wrong is not kept; that it cannot be removed changes nothing.
            let _ = tokio::fs::remove_file(&part).await;
            return Err(failed(name, &"its content is not what its name says"));
        }
        tokio::fs::rename(&part, path).await.map_err(unwritten)
    }

    /// The object of this name. Its content is checked against it.
    ///
    /// # Errors
    /// It is not there, cannot be read, or is something else.
    pub async fn get(&self, name: &str) -> Result<Vec<u8>, ClusterError> {
        match self.read(name).await {
            Err(_) if self.is_put_back(name).await => self.read(name).await,
            read => read,
        }
    }

    async fn read(&self, name: &str) -> Result<Vec<u8>, ClusterError> {
        let store = self.link.objects().await?;
        let mut object = store.get(name).await.map_err(|error| failed(name, &error))?;
        if object.info.size > MOST_BYTES {
            return Err(failed(name, &format!("it has {} bytes", object.info.size)));
        }
        let mut content = Vec::with_capacity(object.info.size);
        object.read_to_end(&mut content).await.map_err(|error| failed(name, &error))?;
        match blake3::hash(&content).to_hex().as_str() == name {
            true => Ok(content),
            false => Err(failed(name, &"its content is not what its name says")),
        }
    }

    fn metadata(&self, name: &str) -> ObjectMetadata {
        // A piece is a message.
        let piece = PIECE.min(self.link.most_bytes(HEADERS));
        ObjectMetadata { name: name.to_owned(), chunk_size: Some(piece), ..ObjectMetadata::default() }
    }

    /// What to send: the body, or nothing, where it is larger than a message may be. Then it is an object, which the headers name.
    pub(crate) async fn fitted(&self, headers: &mut HeaderMap, body: Bytes) -> Result<Bytes, ClusterError> {
        if body.len() <= self.link.most_bytes(HEADERS) {
            return Ok(body);
        }
        let name = blake3::hash(&body).to_hex();
        // Another process may have removed it.
        self.known().remove(name.as_str());
        headers.insert(OBJECT_HEADER, self.store(&body).await?.as_str());
        Ok(Bytes::new())
    }

    /// The body of a message: what came with it, or the object that its headers name.
    pub(crate) async fn body(&self, headers: Option<&HeaderMap>, came: Bytes) -> Result<Bytes, ClusterError> {
        match object_of(headers) {
            Some(object) => Ok(self.get(object).await?.into()),
            None => Ok(came),
        }
    }

    /// Removes an object that is of no use to another process.
    pub(crate) async fn remove(&self, name: &str) {
        if let Ok(store) = self.link.objects().await {
            // It vanishes by its age anyway.
            let _ = store.delete(name).await;
        }
        self.known().remove(name);
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, HashMap<String, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The object that the headers of a message name.
pub(crate) fn object_of(headers: Option<&HeaderMap>) -> Option<&str> {
    Some(headers?.get(OBJECT_HEADER)?.as_str())
}

fn failed(name: &str, error: &dyn std::fmt::Display) -> ClusterError {
    ClusterError::Object { name: name.to_owned(), reason: error.to_string() }
}
