"""Talks to `lemon mcp` with the official Python client and prints what it saw as JSON."""

import asyncio
import json
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

try:
    from mcp.client.streamable_http import streamable_http_client
except ImportError:  # older versions
    from mcp.client.streamable_http import streamablehttp_client as streamable_http_client

way, spec = sys.argv[1:]


def connect():
    if way.startswith("http"):
        return streamable_http_client(way)
    return stdio_client(StdioServerParameters(command=way, args=["mcp"]))


def structured(result):
    return result.structured_content if hasattr(result, "structured_content") else result.structuredContent


async def main():
    steps = []

    async def progress(done, total, message):
        steps.append(done)

    async with connect() as streams, ClientSession(streams[0], streams[1]) as session:
        await session.initialize()
        tools = [tool.name for tool in (await session.list_tools()).tools]
        arguments = {"question": "What is 17 times 4?", "spec": spec}
        run = await session.call_tool("run_team", arguments, progress_callback=progress)
        broken = {"spec": "agents: [{id: a, base: solvr, capacity: small}]"}
        checked = await session.call_tool("validate_team", broken)
        failed = await session.call_tool("get_run", {"run": "nothing"})
    print(
        json.dumps(
            {
                "tools": tools,
                "answer": structured(run)["answer"],
                "valid": structured(checked)["valid"],
                "error": failed.is_error if hasattr(failed, "is_error") else failed.isError,
                "progress": len(steps),
            }
        )
    )


asyncio.run(main())
