"""A scripted model on 127.0.0.1: it calls the one tool as its script says, and keeps what it is given.

It speaks two APIs, both with streamed answers: `/v1/messages` and `/v1/responses`.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# What our server is called in the agents' configurations.
SERVER_NAME = "sandbox"

# What the model says when its script is at its end.
LAST = "The script is at its end."


class Call:
    """Of a tool: of ours, unless it has another name."""

    def __init__(self, arguments, name=None):
        self.arguments = arguments
        self.namespace = None if name else f"mcp__{SERVER_NAME}"
        self.name = name or "run"
        self.full_name = name or f"{self.namespace}__{self.name}"


class Model:
    """`script`: turn by turn a call, a list of calls, or a function of the results so far that gives one call."""

    def __init__(self, script):
        self.script = script
        self.requests = []  # what the agent sent in its conversation, in order
        self.other = []  # what it sent besides
        self.elsewhere = []  # hosts that it wanted to reach, with this as its proxy
        self.error = None
        self.asked = threading.Event()  # set when the first turn is answered
        self.lock = threading.Lock()
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_CONNECT(self):
                model.elsewhere.append(self.path)
                self.answer(403, "text/plain", b"")

            def do_HEAD(self):
                self.answer(200, "text/plain", b"")

            def do_GET(self):
                model.other.append(self.path)
                self.answer(404, "application/json", b'{"error": {"message": "not here"}}')

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                try:
                    kind, answer = model.reply(self.path.partition("?")[0], body)
                except Exception as error:  # the conversation cannot go on
                    model.error = model.error or error
                    self.answer(400, "application/json", json.dumps({"error": {"message": repr(error)}}).encode())
                    return
                self.answer(200, kind, answer)
                if model.requests:
                    model.asked.set()

            def answer(self, status, kind, body):
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # an agent that is gone
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def reply(self, path, body):
        request = json.loads(body)
        dialect = next((dialect for dialect in (Messages, Responses) if path == dialect.PATH), None)
        with self.lock:
            if dialect is None:
                self.other.append(path)
                return "application/json", b"{}"
            if not request.get("tools"):  # a title, a summary, a check
                self.other.append(path)
                return dialect.stream(0, [])
            self.requests.append(request)
            results = dialect.results(request)
            return dialect.stream(len(results), self.next(results))

    def next(self, results):
        """The calls of the turn after these results; none at the end."""
        done = 0
        for turn in self.script:
            if done == len(results):
                turn = turn(results) if callable(turn) else turn
                return turn if isinstance(turn, list) else [turn]
            done += len(turn) if isinstance(turn, list) else 1
        return []


def events(*all_events):
    text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in all_events)
    return "text/event-stream", text.encode()


class Messages:
    """`POST /v1/messages`."""

    PATH = "/v1/messages"

    @staticmethod
    def results(request):
        return [
            block
            for message in request["messages"]
            if isinstance(message["content"], list)
            for block in message["content"]
            if block["type"] == "tool_result"
        ]

    @staticmethod
    def stream(number, calls):
        message = {
            "id": f"msg_{number:04}",
            "type": "message",
            "role": "assistant",
            "model": "scripted",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
        blocks = [
            (
                {"type": "tool_use", "id": f"toolu_{number + index:04}", "name": call.full_name, "input": {}},
                {"type": "input_json_delta", "partial_json": json.dumps(call.arguments)},
            )
            for index, call in enumerate(calls)
        ] or [({"type": "text", "text": ""}, {"type": "text_delta", "text": LAST})]
        stop = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
        said = [{"type": "message_start", "message": message}]
        for index, (block, delta) in enumerate(blocks):
            said.append({"type": "content_block_start", "index": index, "content_block": block})
            said.append({"type": "content_block_delta", "index": index, "delta": delta})
            said.append({"type": "content_block_stop", "index": index})
        said.append({"type": "message_delta", "delta": stop, "usage": {"output_tokens": 1}})
        return events(*said, {"type": "message_stop"})


class Responses:
    """`POST /v1/responses`."""

    PATH = "/v1/responses"

    @staticmethod
    def results(request):
        return [item for item in request["input"] if item.get("type") == "function_call_output"]

    @staticmethod
    def stream(number, calls):
        items = [
            {
                "type": "function_call",
                "id": f"fc_{number + index:04}",
                "call_id": f"call_{number + index:04}",
                "namespace": call.namespace,
                "name": call.name,
                "arguments": json.dumps(call.arguments),
                "status": "completed",
            }
            for index, call in enumerate(calls)
        ] or [
            {
                "type": "message",
                "id": f"msg_{number:04}",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": LAST, "annotations": []}],
            }
        ]
        response = {"id": f"resp_{number:04}", "object": "response", "model": "scripted"}
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        said = [{"type": "response.created", "response": {**response, "status": "in_progress", "output": []}}]
        for index, item in enumerate(items):
            said.append({"type": "response.output_item.added", "output_index": index, "item": item})
            said.append({"type": "response.output_item.done", "output_index": index, "item": item})
        last = {**response, "status": "completed", "output": items, "usage": usage}
        return events(*said, {"type": "response.completed", "response": last})
