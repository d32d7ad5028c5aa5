//! `lemon mcp`: LEMON as an MCP server, on standard input and output or over HTTP. Nothing but the protocol goes to standard
//! output.

mod budget;
mod server;
mod tools;

use crate::args::{Cli, McpArgs};
use crate::fault::Fault;
use crate::{runtime, say};
use budget::TotalBudget;
use lemon::Lemon;
use rmcp::service::serve_server;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use server::LemonServer;
use std::net::SocketAddr;
use std::sync::Arc;

pub fn mcp(cli: &Cli, args: &McpArgs) -> Result<u8, Fault> {
    if let Some(address) = args.http.filter(|address| !address.ip().is_loopback()) {
        return Err(Fault::new(format!("--http must be an address of this machine, got {address}"))
            .hint("the server has no authentication: use 127.0.0.1, and before it a proxy that has"));
    }
    let config = cli.config(&args.endpoints)?;
    let store = config.store_path(cli.store.as_deref());
    let budget = args.budget.budget(args.timeout);
    runtime()?.block_on(async {
        let mut builder = Lemon::builder().config(config).store(store).budget(budget).notices(say::talk);
        if let Some(kind) = args.workers {
            builder = builder.workers(kind);
        }
        let lemon = builder.build().await?;
        let server = LemonServer::new(lemon, TotalBudget::new(args.total_tokens));
        match args.http {
            None => over_stdio(server).await,
            Some(address) => over_http(server, address).await,
        }
    })
}

async fn over_stdio(server: LemonServer) -> Result<u8, Fault> {
    let failed = |error: &dyn std::fmt::Display| Fault::new(format!("the connection failed: {error}")).code(1);
    let running = serve_server(server, (tokio::io::stdin(), tokio::io::stdout())).await;
    running.map_err(|error| failed(&error))?.waiting().await.map_err(|error| failed(&error))?;
    Ok(0)
}

async fn over_http(server: LemonServer, address: SocketAddr) -> Result<u8, Fault> {
    let failed = |error: std::io::Error| Fault::new(format!("{address}: {error}")).code(1);
    let listener = tokio::net::TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    let mut config = StreamableHttpServerConfig::default();
    // A page of another site must not talk to it.
    config.allowed_origins = ["localhost", "127.0.0.1", "[::1]"].map(|host| format!("http://{host}:*")).to_vec();
    let service = StreamableHttpService::new(move || Ok(server.clone()), Arc::<LocalSessionManager>::default(), config);
    eprintln!("serving MCP at http://{bound}/mcp");
    axum::serve(listener, axum::Router::new().route_service("/mcp", service)).await.map_err(failed)?;
    Ok(0)
}
