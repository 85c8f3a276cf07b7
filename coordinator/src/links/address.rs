//! Where workers are, as the configuration says it.

use tonic::transport::Uri;

/// Where draft workers are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DraftPlace {
    /// One, at this URL.
    Url(String),
    /// One at each address that this name and port (`name:port`) stand for.
    Name {
        /// The name and the port.
        name: String,
        /// True where they speak TLS, each with a certificate of the name.
        tls: bool,
    },
}

impl DraftPlace {
    /// Reads `http://host:port` or `dns://name:port`; with TLS, `https` and `dns+https`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(address: &str) -> Result<Self, &'static str> {
        let uri = parts(address)?;
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        match uri.scheme_str() {
            Some(scheme @ ("http" | "https")) => Ok(Self::Url(format!("{scheme}://{authority}"))),
            Some(scheme @ ("dns" | "dns+https")) => Ok(Self::Name {
                name: authority.to_owned(),
                tls: scheme == "dns+https",
            }),
            _ => Err("must begin with http://, https://, dns:// or dns+https://"),
        }
    }
}

/// Checks that `url` is `http://host:port` or `https://host:port`.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn check_url(url: &str) -> Result<(), &'static str> {
    match parts(url)?.scheme_str() {
        Some("http" | "https") => Ok(()),
        _ => Err("must begin with http:// or https://"),
    }
}

fn parts(address: &str) -> Result<Uri, &'static str> {
    let uri: Uri = address.parse().map_err(|_| "is not an address")?;
    let path = uri.path_and_query().map(|path| path.as_str());
    if uri.scheme().is_none() {
        return Err("must begin with a scheme, such as http://");
    }
    if uri.port_u16().is_none() {
        return Err("must name a port");
    }
    if !matches!(path, None | Some("/")) {
        return Err("must end after the port");
    }
    Ok(uri)
}
