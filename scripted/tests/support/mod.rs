//! A client that shows every byte. Asserts nothing but that what it reads is HTTP.
#![allow(dead_code, reason = "each file of tests uses a part of it")]

use std::io;

use plimsoll_scripted::Provider;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A response as it came: status, headers in lower case, body with its chunks taken out, and
/// whether its end was told.
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
    pub chunks: usize,
    pub whole: bool,
}

pub async fn open(
    provider: &Provider,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> TcpStream {
    let mut stream = TcpStream::connect(provider.address).await.unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

pub async fn call(
    provider: &Provider,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> io::Result<Answer> {
    let mut stream = open(provider, method, path, headers, body).await;
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    loop {
        match stream.read(&mut part).await {
            Ok(0) | Err(_) => break,
            Ok(count) => bytes.extend_from_slice(&part[..count]),
        }
    }
    let split = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let split = split.ok_or(io::ErrorKind::UnexpectedEof)?;
    let head = String::from_utf8(bytes[..split].to_vec())
        .unwrap()
        .to_lowercase();
    let status = head[9..12].parse().unwrap();
    let raw = &bytes[split + 4..];
    let (body, chunks, whole) = if head.contains("transfer-encoding: chunked") {
        dechunk(raw)
    } else {
        (raw.to_vec(), 1, true)
    };
    Ok(Answer {
        status,
        head,
        body,
        chunks,
        whole,
    })
}

fn dechunk(mut raw: &[u8]) -> (Vec<u8>, usize, bool) {
    let mut body = Vec::new();
    let mut chunks = 0;
    while let Some(line) = raw.windows(2).position(|two| two == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&raw[..line]).unwrap(), 16).unwrap();
        if size == 0 {
            return (body, chunks, true);
        }
        body.extend_from_slice(&raw[line + 2..line + 2 + size]);
        chunks += 1;
        raw = &raw[line + 2 + size + 2..];
    }
    (body, chunks, false)
}
