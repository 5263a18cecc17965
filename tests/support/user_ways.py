"""Ways in which a user's tool or flow hangs, exits, raises, crashes or returns nonsense."""

MINE = '''
import argparse, asyncio, ctypes, json, os, re, signal, subprocess, sys, threading, time

from rejuice.operators.agents import Flow, Observation, Tool, ToolError
from rejuice.operators.agents.play import TrajectoryEnd

class Word(str):
    """A text of one's own."""

def library(): return {}["no such key"]

def option(text):
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int)
    return str(parser.parse_args(["--n", text]).n)

def ends(text):
    raise text

async def swallows():
    while True:
        try: await asyncio.sleep(1000)
        except BaseException: pass

def stubborn():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)
    time.sleep(1000)

def threads():
    threading.Thread(target=time.sleep, args=(1000,)).start()
    return "started"

def moves():
    os.chdir("/"); os.environ.clear()
    return "moved"

class Ways(Tool):
    """Does something."""
    calls: int = 0

    async def call(self, way: str, word: str = "x"):
        match way:
            case "fine": return word
            case "exits": sys.exit(3)
            case "option": return option(word)
            case "os_exits": os._exit(0)
            case "crashes": return str(ctypes.string_at(0))
            case "kills": os.kill(os.getpid(), signal.SIGKILL)
            case "kills_group": os.killpg(0, signal.SIGKILL)
            case "cancels": raise asyncio.CancelledError
            case "interrupts": raise KeyboardInterrupt
            case "stops": return next(iter([]))
            case "closes": raise GeneratorExit
            case "outage": raise ToolError("the library is closed")
            case "refused": raise ConnectionRefusedError("nobody is there")
            case "late": raise TimeoutError("no answer")
            case "library": return library()
            case "value": raise ValueError("no such word")
            case "key": return {}[word]
            case "index": return [][0]
            case "divides": return 1 / 0
            case "type": return 1 + word
            case "json": return json.loads(word)
            case "none": return None
            case "number": return 4
            case "dict": return {"text": word}
            case "bytes": return b"word"
            case "word": return Word("mine")
            case "mega": return "x" * 30_000_000
            case "deep": return await self.call("deep")
            case "sleeps": time.sleep(1000)
            case "spins":
                while True: pass
            case "regex": return str(re.match(r"(a+)+$", "a" * 40 + "b"))
            case "runs": subprocess.run(["sleep", "1234.5"])
            case "hangs": await asyncio.sleep(1000)
            case "swallows": await swallows()
            case "stubborn": stubborn()
            case "threads": return threads()
            case "moves": return moves()
            case "descriptors": os.closerange(3, 200)
            case "prints": print("x" * 100_000); return "printed"
            case "reads": return input()
            case "never_back":
                loop = asyncio.get_running_loop()
                loop.call_later(0.1, time.sleep, 1000)
                await asyncio.sleep(1)

class Acts(Flow):
    """Does what the question says."""
    async def run(self, task, play):
        kind, _, way = task.question.partition(" ")
        if kind not in ("tool", "flow"): return (await play.act(task.messages)).text
        if kind == "tool": return (await play.call("ways", {"way": way})).text
        match way:
            case "fine":
                one, two = await asyncio.gather(play.act(task.messages), play.act(task.messages))
                left, refused = play.turns_left, play.refuse("no").text
                names = [each.name for each in play.tools]
                return f"{one.text} {two.text} {left} {refused} {names} {len(play.turns)}"
            case "named":
                hello = await play.act(messages=(each for each in task.messages))
                found = await play.call(tool="ways", arguments={"way": "fine", "word": hello.text})
                return f"{found.text} {play.refuse(text='no').text}"
            case "context": play.waiting()
            case "races":
                slow = asyncio.create_task(play.call("ways", {"way": "hangs"}))
                await asyncio.wait([slow], timeout=0.2)
                slow.cancel()
                return (await play.call("ways", {"way": "fine"})).text
            case "leaves":
                asyncio.create_task(self.later(play))
                return "left"
            case "waits": await asyncio.sleep(0.5); return "waited"
            case "looks":
                async def look():
                    for _ in range(2):
                        await play.act(task.messages)
                        assert play.turns_left >= 0
                await asyncio.gather(*(look() for _ in range(4)))
                return "looked"
            case "first":
                calls = [asyncio.create_task(play.call("ways", {"way": way})) for way in ("fine", "hangs")]
                done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
                return done.pop().result().text
            case "leaves_sleep":
                asyncio.get_running_loop().create_task(self.sleep())
                return "left"
            case "no_attribute": return play.no_such
            case "failure": return str(play.first_failure)
            case "exits": sys.exit(1)
            case "os_exits": os._exit(1)
            case "raises": return {}["question"]
            case "cancels": raise asyncio.CancelledError
            case "number": return 4
            case "sleeps": time.sleep(1000)
            case "spins":
                while True: pass
            case "until_found":
                while (await play.call("ways", {"way": "fine"})).text != "5": pass
            case "unknown":
                while (await play.call("no_such", {})).status != "ok": pass
            case "refuses":
                while True: play.refuse("no")
            case "swallows": await swallows()
            case "goes_on":
                while True:
                    try: await play.call("ways", {"way": "outage"})
                    except BaseException: pass
            case "ends": raise TrajectoryEnd("context_full", "it is enough")
            case "sub_task": await asyncio.gather(self.exits())
            case "own_type": await play.call("ways", {"way": Word("fine")})
            case "wrong": await play.act(5)

    async def exits(self): sys.exit(2)

    async def sleep(self):
        await asyncio.sleep(0)
        await asyncio.sleep(0.3)
        time.sleep(1000)

    async def later(self, play):
        await asyncio.sleep(0.2)
        await play.call("ways", {"way": "fine", "word": "of another trajectory"})
'''

TOOL_WAYS = {
    "fine": ("stop", "x"),
    "exits": ("tool_failed", "SystemExit: 3"),
    "option": ("tool_failed", "SystemExit: 2"),
    "os_exits": ("tool_failed", "its process ended"),
    "crashes": ("tool_failed", "its process ended"),
    "kills": ("tool_failed", "its process ended"),
    "kills_group": ("tool_failed", "its process ended"),
    "cancels": ("tool_failed", "CancelledError"),
    "interrupts": ("tool_failed", "KeyboardInterrupt"),
    "stops": ("tool_failed", "StopIteration"),
    "closes": ("tool_failed", "GeneratorExit"),
    "outage": ("tool_failed", "ways: the library is closed"),
    "refused": ("tool_failed", "ConnectionRefusedError: nobody is there (mine.py, line"),
    "late": ("tool_failed", "TimeoutError: no answer"),
    "library": ("tool_failed", "KeyError: 'no such key' (mine.py, line"),
    "value": ("stop", "no such word"),
    "key": ("stop", "KeyError: 'x'"),
    "index": ("stop", "IndexError: list index out of range"),
    "divides": ("stop", "ZeroDivisionError: division by zero"),
    "type": ("stop", "TypeError: unsupported operand"),
    "json": ("stop", "Expecting value"),
    "none": ("tool_failed", "Ways.call returned NoneType"),
    "number": ("tool_failed", "Ways.call returned int"),
    "dict": ("tool_failed", "Ways.call returned dict"),
    "bytes": ("tool_failed", "Ways.call returned bytes"),
    "word": ("stop", "mine"),
    "mega": ("stop", "characters left out"),
    "deep": ("tool_failed", "RecursionError"),
    "sleeps": ("time_limit", "longer than 3 s"),
    "spins": ("time_limit", "longer than 3 s"),
    "regex": ("time_limit", "longer than 3 s"),
    "runs": ("time_limit", "longer than 3 s"),
    "hangs": ("time_limit", "longer than 3 s"),
    "swallows": ("time_limit", "longer than 3 s"),
    "stubborn": ("time_limit", "longer than 3 s"),
    "never_back": ("time_limit", "longer than 3 s"),
    "threads": ("stop", "started"),
    "moves": ("stop", "moved"),
    "descriptors": ("tool_failed", "its process ended"),
    "prints": ("stop", "printed"),
    "reads": ("tool_failed", "EOFError"),
}
FLOW_WAYS = {
    "fine": ("stop", "hello hello 8 no ['ways'] 3"),
    "named": ("stop", "hello no"),
    "context": ("flow_failed", "cannot pickle"),
    "races": ("stop", "x"),
    "leaves": ("stop", "left"),
    "waits": ("stop", "waited"),
    "looks": ("stop", "looked"),
    "first": ("stop", "x"),
    "leaves_sleep": ("stop", "left"),
    "no_attribute": ("flow_failed", "has no attribute 'no_such'"),
    "failure": ("stop", "None"),
    "exits": ("flow_failed", "SystemExit: 1"),
    "os_exits": ("flow_failed", "its process ended"),
    "raises": ("flow_failed", "KeyError: 'question' (mine.py, line"),
    "cancels": ("flow_failed", "CancelledError"),
    "number": ("flow_failed", "it returned int, not text or None"),
    "sleeps": ("time_limit", "longer than 3 s"),
    "spins": ("time_limit", "longer than 3 s"),
    "until_found": ("time_limit", "longer than 3 s"),
    "unknown": ("time_limit", "longer than 3 s"),
    "refuses": ("time_limit", "longer than 3 s"),
    "swallows": ("time_limit", "longer than 3 s"),
    "goes_on": ("tool_failed", "the library is closed"),
    "ends": ("context_full", "it is enough"),
    "sub_task": ("flow_failed", "its process ended"),
    "own_type": ("stop", ""),
    "wrong": ("flow_failed", "TypeError"),
}
