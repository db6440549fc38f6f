//! One member of the etcd cluster: a connection, and etcd's calls on it.
//!
//! Owns how a call looks on the wire, and what counts as an answer of the member. Which member is used is [`super::members`]' to decide.

use std::time::Duration;

use http::uri::PathAndQuery;
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::api::{
    AuthenticateRequest, AuthenticateResponse, LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest,
    LeaseKeepAliveResponse, LeaseRevokeRequest, LeaseRevokeResponse, RangeRequest, RangeResponse, TxnRequest,
    TxnResponse, WatchCreateRequest, WatchOperation, WatchProgressRequest, WatchRequest, WatchResponse,
};
use super::failure::{Failure, is_auth_disabled, is_lease_missing};
use settings::EtcdUser;

/// The longest answer: pages of a snapshot are 64 keys of 1.5 MiB by default.
const ANSWER_BYTES: usize = 256 * 1024 * 1024;

/// A connection on which nothing comes for this long is probed by HTTP/2 …
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// … and closed if this takes longer.
const KEEP_ALIVE_ANSWER: Duration = Duration::from_secs(3);

/// A connection to a member, logged in where etcd has users.
#[derive(Clone)]
pub(crate) struct Client {
    channel: Channel,
    token: Option<MetadataValue<Ascii>>,
}

impl Client {
    /// Connects, without a login.
    pub(crate) async fn connect(endpoint: &Endpoint) -> Result<Client, Failure> {
        let endpoint = endpoint
            .clone()
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE_ANSWER)
            .keep_alive_while_idle(true);
        let channel = endpoint.connect().await.map_err(|why| Failure::transport(&why))?;
        Ok(Client { channel, token: None })
    }

    /// Logs in, where there is a user.
    pub(crate) async fn log_in(mut self, user: Option<&EtcdUser>) -> Result<Client, Failure> {
        let Some(user) = user else { return Ok(self) };
        let request = AuthenticateRequest { name: user.name.clone(), password: user.password.clone() };
        match self.call::<_, AuthenticateResponse>("/etcdserverpb.Auth/Authenticate", request).await {
            Ok(response) => {
                let token = response.token.parse();
                self.token = Some(token.map_err(|_| Failure::answer("its token cannot be sent"))?);
            }
            // As etcd's own clients do: users may be set up before they are enforced.
            Err(failure) if is_auth_disabled(&failure) => {}
            Err(failure) => return Err(failure),
        }
        Ok(self)
    }

    /// Reads keys.
    pub(crate) async fn range(&self, request: RangeRequest) -> Result<RangeResponse, Failure> {
        self.call("/etcdserverpb.KV/Range", request).await
    }

    /// Compares and writes.
    pub(crate) async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, Failure> {
        self.call("/etcdserverpb.KV/Txn", request).await
    }

    /// Creates a lease with this id: its time in seconds.
    pub(crate) async fn grant(&self, id: i64, ttl: i64) -> Result<i64, Failure> {
        let request = LeaseGrantRequest { ttl, id };
        Ok(self.call::<_, LeaseGrantResponse>("/etcdserverpb.Lease/LeaseGrant", request).await?.ttl)
    }

    /// Renews a lease: its time in seconds; none if there is no such lease.
    pub(crate) async fn keep_alive(&self, id: i64) -> Result<Option<i64>, Failure> {
        let mut grpc = self.ready().await?;
        let request = self.request(LeaseKeepAliveRequest { id });
        let path = PathAndQuery::from_static("/etcdserverpb.Lease/LeaseKeepAlive");
        let codec = ProstCodec::<LeaseKeepAliveRequest, LeaseKeepAliveResponse>::default();
        let answer = match grpc.server_streaming(request, path, codec).await {
            Ok(response) => response.into_inner().message().await,
            Err(status) => Err(status),
        };
        match answer {
            Ok(Some(response)) => Ok(Some(response.ttl).filter(|ttl| *ttl > 0)),
            Ok(None) => Err(Failure::answer("it does not say whether the lease is renewed")),
            Err(status) => match Failure::from(status) {
                failure if is_lease_missing(&failure) => Ok(None),
                failure => Err(failure),
            },
        }
    }

    /// Ends a lease, and removes what is attached to it; also if there is no such lease.
    pub(crate) async fn revoke(&self, id: i64) -> Result<(), Failure> {
        let request = LeaseRevokeRequest { id };
        match self.call::<_, LeaseRevokeResponse>("/etcdserverpb.Lease/LeaseRevoke", request).await {
            Err(failure) if !is_lease_missing(&failure) => Err(failure),
            _ => Ok(()),
        }
    }

    /// Begins to watch.
    pub(crate) async fn watch(&self, request: WatchCreateRequest) -> Result<WatchStream, Failure> {
        let mut grpc = self.ready().await?;
        let (requests, sent) = mpsc::channel(4);
        let create = WatchRequest { request: Some(WatchOperation::Create(request)) };
        requests.send(create).await.map_err(|_| Failure::answer("the watch has ended"))?;
        let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
        let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
        let response = grpc.streaming(self.request(ReceiverStream::new(sent)), path, codec).await?;
        Ok(WatchStream { requests, responses: response.into_inner() })
    }

    async fn call<Req, Res>(&self, path: &'static str, message: Req) -> Result<Res, Failure>
    where
        Req: Message + Send + Sync + 'static,
        Res: Message + Default + Send + Sync + 'static,
    {
        let mut grpc = self.ready().await?;
        let codec = ProstCodec::<Req, Res>::default();
        let response = grpc.unary(self.request(message), PathAndQuery::from_static(path), codec).await?;
        Ok(response.into_inner())
    }

    async fn ready(&self) -> Result<Grpc<Channel>, Failure> {
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(ANSWER_BYTES);
        grpc.ready().await.map_err(|why| Failure::transport(&why))?;
        Ok(grpc)
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        // A member that knows of no leader refuses at once, and ends watches.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }
}

/// A watch.
pub(crate) struct WatchStream {
    requests: mpsc::Sender<WatchRequest>,
    responses: Streaming<WatchResponse>,
}

impl WatchStream {
    /// The next response; none at the end. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> Result<Option<WatchResponse>, Status> {
        self.responses.message().await
    }

    /// Asks for a response even if nothing has changed.
    pub(crate) fn request_progress(&self) {
        let request = WatchRequest { request: Some(WatchOperation::Progress(WatchProgressRequest {})) };
        // If the last ones are not sent yet, the member is not answering, which is noticed.
        let _ = self.requests.try_send(request);
    }
}
