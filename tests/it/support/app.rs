//! The whole program in this process, on ports of its own, and a client for it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bloomguard::app::App;
use bloomguard::config;
use bloomguard::keyspace::Keyspace;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::config::Config;
use super::{assert_eventually, eventually};

/// An answer, read to its end.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: HashMap<String, String>,
    pub body: Bytes,
}

impl Answer {
    async fn read(response: hyper::Response<hyper::body::Incoming>) -> hyper::Result<Self> {
        let (parts, body) = response.into_parts();
        let headers = parts.headers.iter().map(|(k, v)| (k.to_string(), v.to_str().unwrap().to_owned())).collect();
        Ok(Self { status: parts.status.as_u16(), headers, body: body.collect().await?.to_bytes() })
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {:?}", self.body))
    }

    /// `200 backend`, `404 filter`, `503 `.
    pub fn told(&self) -> String {
        format!("{} {}", self.status, self.header("bloomguard-source"))
    }
}

fn request(method: &str, url: &str, headers: &[(&str, &str)], body: &str) -> hyper::Request<Full<Bytes>> {
    let mut request = hyper::Request::builder().method(method).uri(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap()
}

/// A client with a pool of connections.
#[derive(Debug, Clone)]
pub struct Http(Client<HttpConnector, Full<Bytes>>);

impl Default for Http {
    fn default() -> Self {
        Self(Client::builder(TokioExecutor::new()).build_http())
    }
}

impl Http {
    /// Speaks HTTP/2 with prior knowledge, all over one connection.
    pub fn h2c() -> Self {
        Self(Client::builder(TokioExecutor::new()).http2_only(true).build_http())
    }

    pub async fn send(&self, method: &str, url: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let response = self
            .0
            .request(request(method, url, headers, body))
            .await
            .unwrap_or_else(|e| panic!("{method} {url}: {e:?}"));
        Answer::read(response).await.unwrap()
    }

    /// `None`: there was no answer, or not to its end.
    pub async fn try_send(&self, method: &str, url: &str, headers: &[(&str, &str)], body: &str) -> Option<Answer> {
        Answer::read(self.0.request(request(method, url, headers, body)).await.ok()?).await.ok()
    }

    pub async fn get(&self, url: &str) -> Answer {
        self.send("GET", url, &[], "").await
    }
}

/// A running bloomguard; stops when dropped.
pub struct TestApp {
    pub data: SocketAddr,
    pub telemetry: SocketAddr,
    pub admin: SocketAddr,
    pub http: Http,
    pub dir: Arc<TempDir>,
    shutdown: CancellationToken,
    task: Option<JoinHandle<()>>,
    guards: HashMap<String, Arc<Keyspace>>,
}

impl Drop for TestApp {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

impl TestApp {
    /// Starts with this configuration, on free ports and with a data folder of its own.
    pub async fn start(config: &Config) -> Self {
        Self::start_in(Arc::new(TempDir::new().unwrap()), config).await
    }

    pub async fn start_in(dir: Arc<TempDir>, config: &Config) -> Self {
        let free = "127.0.0.1:0";
        let listeners = ["listen", "telemetry_listen", "admin_listen"];
        let here = listeners.iter().fold(config.clone(), |config, listener| config.server(listener, free));
        let file = here.server("data_dir", dir.path().join("data").to_str().unwrap()).write(dir.path());
        let config = config::load(&[file.into()], std::iter::empty()).unwrap_or_else(|e| panic!("{e}"));
        let app = App::build(&config).await.unwrap_or_else(|e| panic!("{e:#}"));
        let [data, telemetry, admin] = app.addresses().map(|a| a.to_string().parse().unwrap());
        let guards = config.keyspaces.keys().map(|name| (name.clone(), app.keyspace(name).unwrap())).collect();
        let shutdown = CancellationToken::new();
        let task = Some(tokio::spawn(app.run(shutdown.clone())));
        Self { data, telemetry, admin, http: Http::default(), dir, shutdown, task, guards }
    }

    /// Starts and waits until every keyspace enforces.
    pub async fn enforcing(config: &Config) -> Self {
        let app = Self::start(config).await;
        app.wait_for("enforcing").await;
        app
    }

    pub async fn wait_for(&self, state: &str) {
        for (name, keyspace) in &self.guards {
            eventually(&format!("{name} is {state}"), || keyspace.state().as_str() == state).await;
        }
    }

    pub fn keyspace(&self, keyspace: &str) -> &Arc<Keyspace> {
        &self.guards[keyspace]
    }

    /// Stops as SIGTERM does and waits for the end.
    pub async fn stop(mut self) {
        self.shutdown.cancel();
        self.task.take().unwrap().await.unwrap();
    }

    /// Ends at once, as a crash does.
    pub fn abort(mut self) {
        self.task.take().unwrap().abort();
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.data)
    }

    /// GET on the data listener.
    pub async fn get(&self, path: &str) -> Answer {
        self.http.get(&self.url(path)).await
    }

    pub async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.http.send(method, &self.url(path), headers, "").await
    }

    /// GET on the telemetry listener.
    pub async fn telemetry(&self, path: &str) -> Answer {
        self.http.get(&format!("http://{}{path}", self.telemetry)).await
    }

    pub async fn status(&self, keyspace: &str) -> serde_json::Value {
        self.telemetry("/status").await.json()["keyspaces"][keyspace].clone()
    }

    pub async fn metric(&self, line: &str) -> f64 {
        super::metric(self.telemetry("/metrics").await.text(), line)
    }

    /// A request to the admin listener with the content type that it demands.
    pub async fn admin(&self, method: &str, path: &str, body: &str) -> Answer {
        let url = format!("http://{}{path}", self.admin);
        self.http.send(method, &url, &[("content-type", "application/json")], body).await
    }

    pub async fn rebuild(&self, keyspace: &str) -> String {
        let path = format!("/admin/keyspaces/{keyspace}/rebuild");
        assert_eventually!(self.admin("POST", &path, "").await.status != 409, "the running build does not end");
        let mut progress;
        assert_eventually!(
            {
                progress = self.admin("GET", &path, "").await.json();
                progress["running"].is_null()
            },
            "the build does not end: {progress}"
        );
        progress["last"]["outcome"].as_str().unwrap().to_owned()
    }
}
