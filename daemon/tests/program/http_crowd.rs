//! The metrics port with a crowd of clients that connect, send nothing, and reconnect as soon as
//! their connection is closed.

use crate::host::Host;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const CROWD: usize = 500;

/// Client that always reconnects. It sends `first` and then nothing.
async fn idle(addr: SocketAddr, first: &'static [u8], connections: Arc<AtomicU64>) {
    loop {
        let Ok(mut stream) = TcpStream::connect(addr).await else {
            continue;
        };
        connections.fetch_add(1, Relaxed);
        let _ = stream.write_all(first).await;
        let mut answer = [0; 64];
        while stream.read(&mut answer).await.is_ok_and(|n| n > 0) {}
    }
}

async fn ask(addr: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[test]
fn beside_500_idle_clients_that_reconnect_health_and_metrics_answer_within_a_second() {
    let daemon = Host::new().serve(&[]);
    let addr = daemon
        .metrics
        .strip_prefix("http://")
        .unwrap()
        .strip_suffix("/metrics")
        .unwrap()
        .parse()
        .unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let connections = Arc::<AtomicU64>::default();
        for client in 0..CROWD {
            // Some say nothing at all, some stop in the middle of a request.
            let first: &[u8] = if client % 2 == 0 {
                b""
            } else {
                b"GET /metrics HTTP/1.1\r\nX-"
            };
            tokio::spawn(idle(addr, first, connections.clone()));
        }
        while connections.load(Relaxed) < CROWD as u64 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let mut took = Vec::new();
        for (path, part) in [
            ("/healthz", "\r\n\r\nserving\n"),
            ("/metrics", "ftld_build_info"),
        ]
        .repeat(15)
        {
            let began = Instant::now();
            let answer = tokio::time::timeout(Duration::from_secs(10), ask(addr, path)).await;
            let answer =
                answer.unwrap_or_else(|_| panic!("{path}: no answer in 10 s, after {took:?}"));
            assert!(
                answer.starts_with("HTTP/1.1 200 OK") && answer.contains(part),
                "{path}: {answer}"
            );
            took.push(began.elapsed());
        }
        took.sort();
        let (median, longest) = (took[took.len() / 2], took[took.len() - 1]);
        println!(
            "{} connections of the crowd; median {median:?}, longest {longest:?}",
            connections.load(Relaxed)
        );
        // The median, because the maximum depends more on the machine.
        assert!(median < Duration::from_secs(1), "{took:?}");
    });
    runtime.shutdown_background();
}
