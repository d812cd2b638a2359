//! The protocol: the only file that names `rmcp`.
//!
//! Every version that it serves goes through one loop without a handshake of its own
//! ([`serve_directly`]): a client may `initialize`, ask `server/discover`, or just call with its
//! version in `_meta`.

use std::collections::HashMap;
use std::fmt::Display;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientJsonRpcMessage,
    ClientNotification, ClientRequest, ContentBlock, CustomRequest, CustomResult, ErrorCode,
    Implementation, InitializeRequestParams, InitializeResult, JsonRpcMessage, ListResourcesResult,
    ListToolsResult, MetaObject, PaginatedRequestParams, ProgressNotificationParam, ProgressToken,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, RequestId, Resource,
    ResourceContents, ResourcesCapability, ServerCapabilities, ServerConfig, ServerJsonRpcMessage,
    Tool, ToolAnnotations,
};
use rmcp::service::{RequestContext, serve_directly};
use rmcp::transport::Transport;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc};

use crate::outputs::{Kept, Outputs};
use crate::request::{Draft, beginning};

use super::answer::Answer;
use super::queue::{Gates, Seats, Turn};
use super::text::harmless;
use super::wire::{Line, MAX_LINE, Pen, Wire};
use super::{Door, Options, call, id, progress, run, tool};
use crate::runner::Newest;

/// How long requests that were read before the end of the input may still run.
const GRACE: Duration = Duration::from_secs(2);

/// How long runs that were told to end are waited for.
const DYING: Duration = Duration::from_secs(3);

/// Serves one client until it has gone, or SIGTERM or SIGINT.
///
/// At the end of the input, requests that were read are answered if they end within [`GRACE`]; then,
/// and at once when nobody reads the output or at a signal, every run is cancelled.
///
/// # Errors
/// No signal handler could be installed.
pub(super) async fn serve(door: Arc<dyn Door>, options: Options, wire: Wire) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let Wire { lines, pen, broken } = wire;
    let ended = Arc::new(Notify::new());
    let talk = Talk {
        door: Arc::clone(&door),
        lines: Some(lines),
        pen,
        gates: Gates::new(options.runs),
        unanswered: Arc::default(),
        ended: Arc::clone(&ended),
    };
    let tidy = tokio::spawn(tidy(Arc::clone(&door)));
    let server = Server::new(Arc::clone(&door), options);
    let service = serve_directly::<RoleServer, _, _, _, _>(server, talk, None);
    let stop = service.cancellation_token();
    let mut done = pin!(service.waiting());
    tokio::select! {
        _ = &mut done => {
            door.stop();
            return Ok(());
        }
        () = async { ended.notified().await; tokio::time::sleep(GRACE).await } => {}
        () = broken.notified() => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tidy.abort();
    door.stop();
    stop.cancel();
    // Whoever does not die in time dies with this process.
    let _ = tokio::time::timeout(DYING, done).await;
    Ok(())
}

/// What comes before the name of a kept output in its resource's URI.
const OUTPUT_URI: &str = "sandbox://outputs/";

/// How often the house is put in order.
const TIDY: Duration = Duration::from_secs(5);

async fn tidy(door: Arc<dyn Door>) {
    let mut tick = tokio::time::interval(TIDY);
    loop {
        tick.tick().await;
        door.tidy();
    }
}

/// What answers requests.
struct Server {
    door: Arc<dyn Door>,
    structured: bool,
}

impl Server {
    fn new(door: Arc<dyn Door>, options: Options) -> Self {
        // The first look may take a moment; no client shall wait for it.
        let _ = door.environments();
        Self { door, structured: options.structured }
    }

    fn tool(&self) -> Tool {
        let schema = tool::schema(&self.door.environments());
        // It writes, but to a sandbox: nothing of the host is changed. A session, though, is not the
        // same after a call.
        let annotations = ToolAnnotations::new()
            .read_only(false)
            .destructive(false)
            .idempotent(false)
            .open_world(false);
        let mut tool = Tool::new(tool::NAME, tool::description(&self.door.facts()), schema)
            .with_annotations(annotations);
        // Claude Code shows a model no more than the names of tools that do not say this, so that it
        // would not learn when to use this one.
        let always = Map::from_iter([("anthropic/alwaysLoad".to_owned(), Value::Bool(true))]);
        tool.meta = Some(MetaObject(always));
        if self.structured {
            tool = tool.with_raw_output_schema(Arc::new(tool::output_schema()));
        }
        tool
    }

    fn result(&self, answer: Answer) -> CallToolResult {
        let Answer { text, is_error, meta, images, structured } = answer;
        let images =
            images.iter().map(|image| ContentBlock::image(BASE64.encode(&image.bytes), image.mime));
        let content = std::iter::once(ContentBlock::text(text)).chain(images).collect();
        let mut result = match is_error {
            true => CallToolResult::error(content),
            false => CallToolResult::success(content),
        };
        result.meta = Some(MetaObject(meta));
        result.structured_content = self.structured.then_some(Value::Object(structured));
        result
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let mut capabilities = ServerCapabilities::builder().enable_tools().build();
        capabilities.resources = self.door.outputs().map(|_| ResourcesCapability::default());
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new(
                env!("CARGO_PKG_NAME"),
                env!("CARGO_PKG_VERSION"),
            ))
            .with_instructions(tool::instructions(&self.door.environments()))
    }

    /// Remembers the version that was agreed on, not the one that was asked for: answers take their
    /// shape from it.
    async fn initialize(
        &self,
        mut request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        let result = self.negotiate_initialize(&request)?;
        request.protocol_version = result.protocol_version.clone();
        context.peer.set_peer_info(request);
        self.door.begin();
        Ok(result)
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        version_known(&context)?;
        self.door.begin();
        Ok(ListToolsResult::with_all_items(vec![self.tool()]))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let draft = call::draft(call.arguments.as_ref());
        version_known(&context)
            .and_then(|()| tool_known(&call.name))
            .inspect_err(|error| self.door.refuse(&draft, &error.message))?;
        let ticket = context.extensions.get::<Ticket>();
        let Some((unanswered, turn)) = ticket.and_then(Ticket::take) else {
            return Err(ErrorData::internal_error("a call came without its turn", None));
        };
        self.door.begin();
        let token = context.meta.get_progress_token();
        let newest = token.is_some().then(Newest::default);
        let answer = run::answer(
            Arc::clone(&self.door),
            self.door.environments().into(),
            call.arguments.unwrap_or_default(),
            turn,
            context.ct.clone().cancelled_owned(),
            newest.clone(),
        );
        let (answer, seats) = match token.zip(newest) {
            None => answer.await,
            Some((token, newest)) => {
                let tell = |seconds, line| notify(&context, token.clone(), seconds, line);
                progress::meanwhile(answer, &newest, tell).await
            }
        };
        unanswered.keep(&context.id, seats);
        Ok(self.result(answer).into())
    }

    /// The long outputs that are kept, the oldest first.
    async fn list_resources(
        &self,
        _page: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        version_known(&context)?;
        let kept = self.door.outputs().map(Outputs::list).unwrap_or_default();
        let resources = kept.into_iter().map(|Kept { name, bytes, part }| {
            let mut resource = Resource::new(format!("{OUTPUT_URI}{name}"), name)
                .with_mime_type("text/plain")
                .with_size(bytes);
            resource.description = part;
            resource
        });
        Ok(ListResourcesResult::with_all_items(resources.collect()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        version_known(&context)?;
        let bytes = request.uri.strip_prefix(OUTPUT_URI).and_then(|name| {
            let outputs = self.door.outputs()?;
            outputs.read(name)
        });
        let Some(bytes) = bytes else {
            let message = format!("there is no {:?} (any more)", request.uri);
            return Err(ErrorData::resource_not_found(message, None));
        };
        // Line by line, which costs little memory.
        let text: String =
            String::from_utf8_lossy(&bytes).split_inclusive('\n').map(harmless).collect();
        let contents = ResourceContents::text(text, request.uri);
        Ok(ReadResourceResult::new(vec![contents]).into())
    }

    /// Here arrive methods that are unknown, and known ones whose parameters have the wrong shape.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        match request.method.as_str() {
            // Models do this; what they get they can read.
            "tools/call" if names_our_tool(request.params.as_ref()) => {
                let advice = "the arguments must be a JSON object";
                self.door.refuse(&Draft::default(), advice);
                let result = serde_json::to_value(self.result(Answer::advice(advice)))
                    .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
                Ok(CustomResult::new(result))
            }
            "initialize" | "server/discover" | "tools/list" | "tools/call" | "resources/list"
            | "resources/read" => {
                let message = format!("the parameters of {} have the wrong shape", request.method);
                if request.method == "tools/call" {
                    self.door.refuse(&Draft::default(), &message);
                }
                Err(ErrorData::invalid_params(message, None))
            }
            unknown => {
                let message = format!("there is no method {unknown:?}");
                Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, message, None))
            }
        }
    }
}

/// A request must say which version it speaks, unless `initialize` did.
fn version_known(context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
    match context.protocol_version() {
        Some(_) => Ok(()),
        None => Err(ErrorData::invalid_params(
            "send initialize first, or io.modelcontextprotocol/protocolVersion and \
             io.modelcontextprotocol/clientCapabilities in the request's _meta",
            None,
        )),
    }
}

fn tool_known(name: &str) -> Result<(), ErrorData> {
    if name == tool::NAME {
        return Ok(());
    }
    let message = format!("there is no tool {:?}; the tool is {}", beginning(name), tool::NAME);
    Err(ErrorData::invalid_params(message, None))
}

fn names_our_tool(params: Option<&Value>) -> bool {
    params.and_then(|params| params.get("name")).and_then(Value::as_str) == Some(tool::NAME)
}

/// Tells the client how far its call is, unless it has cancelled it.
async fn notify(
    context: &RequestContext<RoleServer>,
    token: ProgressToken,
    seconds: f64,
    line: String,
) {
    if !context.ct.is_cancelled() {
        let progress = ProgressNotificationParam::new(token, seconds).with_message(line);
        // Whoever has gone is told by the wire.
        let _ = context.peer.notify_progress(progress).await;
    }
}

/// The turn of one call, taken when its line was read, before any task could overtake it.
#[derive(Clone)]
struct Ticket(Arc<Unanswered>, Arc<Mutex<Option<Turn>>>);

impl Ticket {
    fn take(&self) -> Option<(Arc<Unanswered>, Turn)> {
        lock(&self.1).take().map(|turn| (Arc::clone(&self.0), turn))
    }
}

/// The requests that were read and not yet answered, with the seats of those that have run.
#[derive(Default)]
struct Unanswered {
    ids: Mutex<HashMap<RequestId, Option<Seats>>>,
    fewer: Notify,
}

impl Unanswered {
    fn add(&self, id: &RequestId) {
        lock(&self.ids).insert(id.clone(), None);
    }

    /// Keeps the seats until the answer is on its way; not if there will be none (cancelled).
    fn keep(&self, id: &RequestId, seats: Option<Seats>) {
        if let Some(place) = lock(&self.ids).get_mut(id) {
            *place = seats;
        }
    }

    /// The answer is in the queue of what is written: let the next one in.
    fn release(&self, id: &RequestId) {
        self.keep(id, None);
    }

    fn remove(&self, id: &RequestId) {
        lock(&self.ids).remove(id);
        self.fewer.notify_one();
    }

    async fn none(&self) {
        while !lock(&self.ids).is_empty() {
            self.fewer.notified().await;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The transport: lines ↔ messages.
struct Talk {
    door: Arc<dyn Door>,
    /// `None` once the input has ended.
    lines: Option<mpsc::Receiver<Line>>,
    pen: Pen,
    gates: Gates,
    unanswered: Arc<Unanswered>,
    ended: Arc<Notify>,
}

impl Talk {
    /// Notes what a message means for the queue and for those who wait for an answer.
    fn note(&self, message: &mut ClientJsonRpcMessage) {
        match message {
            JsonRpcMessage::Request(request) => {
                self.unanswered.add(&request.id);
                if let ClientRequest::CallToolRequest(call) = &mut request.request {
                    let session = call::session(call.params.arguments.as_ref());
                    let turn = Arc::new(Mutex::new(Some(self.gates.join(session))));
                    call.extensions.insert(Ticket(Arc::clone(&self.unanswered), turn));
                }
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) =
                    &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.unanswered.remove(id);
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
        }
    }

    fn write(
        &self,
        message: &ServerJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + use<> {
        let line = serde_json::to_vec(message).map(|mut line| {
            line.push(b'\n');
            self.pen.write(line)
        });
        async move { line?.await }
    }
}

impl Transport<RoleServer> for Talk {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let written = self.write(&message);
        let unanswered = Arc::clone(&self.unanswered);
        let id = match message {
            JsonRpcMessage::Response(response) => Some(response.id),
            JsonRpcMessage::Error(error) => error.id,
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        if let Some(id) = &id {
            unanswered.release(id);
        }
        async move {
            let written = written.await;
            if let Some(id) = id {
                unanswered.remove(&id);
            }
            written
        }
    }

    /// The next message. May be dropped at any await and called again.
    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        while let Some(lines) = &mut self.lines {
            let read = match lines.recv().await {
                Some(Line::Whole(line)) => parse(&line),
                Some(Line::TooLong(id)) => Err(too_long(id.as_ref())),
                None => {
                    self.lines = None;
                    self.ended.notify_one();
                    break;
                }
            };
            match read {
                Ok(Some(mut message)) => {
                    self.note(&mut message);
                    return Some(message);
                }
                Ok(None) => {}
                Err(Failure { what, answer }) => {
                    self.door.refuse(&Draft::default(), what);
                    // An output that has gone is told by the wire.
                    drop(self.pen.write(answer).await);
                }
            }
        }
        self.unanswered.none().await;
        None
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        self.lines = None;
        Ok(())
    }
}

/// A line that is no message.
struct Failure {
    /// In our own words, with none of the line's.
    what: &'static str,
    answer: Vec<u8>,
}

/// A line → a message; nothing, if the line is blank; the answer, if it is something else.
fn parse(line: &[u8]) -> Result<Option<ClientJsonRpcMessage>, Failure> {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii();
    if line.is_empty() {
        return Ok(None);
    }
    let error = match serde_json::from_slice(line) {
        Ok(message) => return Ok(Some(message)),
        Err(error) => error,
    };
    // Some JSON cannot be kept, such as a string with a lone surrogate, but its id can be.
    if let Err(error) = serde_json::from_slice::<IgnoredAny>(line) {
        return Err(failure(ErrorCode::PARSE_ERROR, "this is no JSON", &error, None));
    }
    let what = "this is no request of the protocol";
    Err(failure(ErrorCode::INVALID_REQUEST, what, &error, id::of(line).as_ref()))
}

fn too_long(id: Option<&Value>) -> Failure {
    let most = format_args!("at most {MAX_LINE} bytes are taken");
    failure(ErrorCode::INVALID_REQUEST, "the message is too long", &most, id)
}

/// By hand, because rmcp leaves out the id where JSON-RPC wants a null.
fn failure(code: ErrorCode, what: &'static str, more: &dyn Display, id: Option<&Value>) -> Failure {
    let error = json!({"code": code.0, "message": format!("{what}: {more}")});
    let answer = json!({"jsonrpc": "2.0", "id": id, "error": error});
    Failure { what, answer: format!("{answer}\n").into_bytes() }
}
