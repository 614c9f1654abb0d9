//! What to connect to: a server, or the master that sentinels name.
//!
//! Both types are generic in the type of addresses, because an address contains its endpoint.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::url::encode;

/// What to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint<Address> {
    /// A host name or literal address (IPv6 without brackets), and a port.
    Tcp(String, u16),
    /// The absolute path of a unix socket.
    Unix(PathBuf),
    /// The server that the sentinels name as the master.
    Master(Arc<Sentinels<Address>>),
}

/// The sentinels to ask for the master, and the name of the master there.
///
/// Neither `Display` nor `Debug` shows a password, because those of addresses show none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentinels<Address> {
    /// The addresses of the sentinels, at least one, each with the login for sentinels.
    pub nodes: Vec<Address>,
    /// The name of the master.
    pub master: String,
}

/// Writes `host:port,host:port/name`.
impl<Address: fmt::Display> fmt::Display for Sentinels<Address> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, node) in self.nodes.iter().enumerate() {
            let shown = node.to_string();
            let shown = shown.split_once("://").map_or(&*shown, |(_, rest)| rest);
            let host = shown.rsplit_once('@').map_or(shown, |(_, host)| host);
            write!(f, "{}{host}", if index > 0 { "," } else { "" })?;
        }
        write!(f, "/{}", encode(&self.master, "?#@&"))
    }
}
