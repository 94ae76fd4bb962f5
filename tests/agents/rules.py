"""What a real provider refuses in a Chat Completions request.

It only judges: it never repairs a request, and knows nothing of the proxy. `refusal` returns the
text of the error, or None for a request that stands.
"""

ROLES = {"system", "developer", "user", "assistant", "tool"}
DESCRIPTION_LIMIT = 1024


def refusal(body):
    """The first rule that the request breaks, as the provider would word it."""
    if not isinstance(body.get("model"), str) or not body["model"]:
        return "you must provide a model parameter"
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return "[] is too short - 'messages'"
    return _tools(body) or _messages(messages)


def _tools(body):
    tools = body.get("tools")
    if tools is None:
        return "'tool_choice' is only allowed when 'tools' are specified" if "tool_choice" in body else None
    if not isinstance(tools, list) or not tools:
        return "[] is too short - 'tools'"
    names = []
    for place, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or tool.get("type") != "function":
            return f"Missing required parameter: 'tools[{place}].function'"
        if not isinstance(function.get("name"), str):
            return f"Missing required parameter: 'tools[{place}].function.name'"
        if len(function.get("description") or "") > DESCRIPTION_LIMIT:
            return f"Invalid 'tools[{place}].function.description': string too long"
        names.append(function["name"])
    if len(names) != len(set(names)):
        return "Tool names must be unique"
    return None


def _messages(messages):
    awaited = []  # The call ids that the results right here must answer.
    for place, message in enumerate(messages):
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ROLES:
            return f"Invalid value: '{role}' for 'messages[{place}].role'"
        if role == "tool":
            call = message.get("tool_call_id")
            if call not in awaited:
                return (
                    "messages with role 'tool' must be a response to a preceeding message with "
                    f"'tool_calls' (messages[{place}], {call!r})"
                )
            awaited.remove(call)
            content = message.get("content")
            if not isinstance(content, (str, list)):
                return f"Invalid type for 'messages[{place}].content'"
            if any(part.get("type") != "text" for part in content if isinstance(part, dict)):
                return f"Invalid value in 'messages[{place}].content'. Supported values are: 'text'."
            continue
        if awaited:
            return (
                "An assistant message with 'tool_calls' must be followed by tool messages responding "
                f"to each 'tool_call_id'. Not answered before messages[{place}]: {awaited}"
            )
        if role == "assistant":
            problem, awaited = _assistant(place, message)
            if problem:
                return problem
        elif not message.get("content"):
            return f"Invalid value for 'content': messages[{place}] expected a string, got nothing"
    if awaited:
        return f"tool_call_ids did not have response messages: {awaited}"
    return None


def _assistant(place, message):
    calls = message.get("tool_calls")
    if calls is None:
        if not message.get("content") and not message.get("refusal"):
            return f"messages[{place}]: an assistant message needs 'content' or 'tool_calls'", []
        return None, []
    if not isinstance(calls, list) or not calls:
        return f"[] is too short - 'messages[{place}].tool_calls'", []
    ids = []
    for call in calls:
        function = call.get("function") or {}
        if not call.get("id") or call.get("type") != "function" or not function.get("name"):
            return f"Missing required parameter in 'messages[{place}].tool_calls'", []
        if not isinstance(function.get("arguments"), str):
            return f"Invalid type for 'messages[{place}].tool_calls[].function.arguments'", []
        ids.append(call["id"])
    if len(ids) != len(set(ids)):
        return f"Duplicate tool call ids in messages[{place}]", []
    return None, ids
