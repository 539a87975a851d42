"""Conversations about a toy world, drawn by a seeded generator: questions with and without functions, results, and answers in JSON.

What the demo model should learn is to use what the prompt says. So functions and their parameters have several names, of which one is drawn
for each conversation, a share of them is made up of random words, and values are copied from the question.
"""

import json
import random
from dataclasses import dataclass

CITIES = """Paris London Rome Berlin Madrid Vienna Athens Lisbon Oslo Dublin Prague Warsaw Cairo Delhi Tokyo Lima Boston Chicago Bath
Exeter Jerusalem Nazareth Bethlehem Damascus Babylon Nineveh Corinth Ephesus York Oxford Cambridge Bristol Dover Geneva Milan Venice Naples
Hamburg Munich Lyon Bruges Porto Seville""".split()
COUNTRIES = "Israel Judah Egypt France Spain England Italy Greece Persia Syria Norway Portugal Scotland Ireland India Japan".split()
PEOPLE = """David Solomon Saul John Peter Paul James Thomas Mary Martha Ruth Sarah Rebecca Rachel Hannah Esther Anne Emma Jane Elizabeth
Catherine Henry Edward William George Frank Charles Robert Daniel Samuel Joseph Benjamin Simon Andrew Philip Lydia Kitty Fanny Harriet
Elinor Marianne Margaret""".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
ITEMS = "apples loaves books chairs candles letters horses sheep shirts tickets lamps eggs fishes cakes pens cups keys".split()
MONEY = "dollars pounds euros francs shillings".split()
LANGUAGES = "French German Latin Greek Hebrew Spanish Italian".split()
COLOURS = "red blue green white black yellow brown grey".split()
SKIES = "sunny cloudy rainy windy foggy clear".split()
TITLES = ["The Garden", "The Old House", "The King", "The Long Walk", "The Sea", "The Lost Letter", "The Machine", "The River",
          "The Last Day", "The Two Sisters", "The Night", "The Journey", "The Good Man", "The Black Horse", "The City"]
NEWS = ["dinner is ready", "the ship has come", "I am late", "the door is open", "we are at home", "the work is done",
        "the letter has arrived", "it rains", "all is well", "the horse is sick", "I will come"]
WORDS = """house garden river mountain window letter table horse bread water stone fire wind morning evening summer winter music
friend brother sister mother father child book paper ship road bridge tower wall gate field tree flower bird fish light""".split()
SYLLABLES = "ba be bo ca da de do fa fe ga go ha jo ka ke la le lo ma me mi mo na ne no pa pe po ra re ri ro sa se so ta te ti to va ve wa za".split()


class Draw(random.Random):
    """Draws values of a kind."""

    def name(self) -> str:
        return "".join(self.choices(SYLLABLES, k=self.randint(2, 3)))

    def value(self, kind: str):
        # Some names are of no list, so that they must be copied.
        coined = self.random() < 0.2
        match kind:
            case "city" | "country" | "person":
                known = {"city": CITIES, "country": COUNTRIES, "person": PEOPLE}[kind]
                return self.name().capitalize() if coined else self.choice(known)
            case "day":
                return self.choice(DAYS)
            case "count":
                return self.randint(2, 99) if coined else self.randint(2, 12)
            case "time":
                return f"{self.randint(1, 12)}:{self.choice(['00', '15', '30', '45'])}"
            case "item":
                return self.choice(ITEMS)
            case "title":
                return self.choice(TITLES)
            case "news":
                return self.choice(NEWS)
            case "word":
                return self.name() if coined else self.choice(WORDS)
            case "money":
                return self.choice(MONEY)
            case "language":
                return self.choice(LANGUAGES)
        raise ValueError(kind)


@dataclass
class Skill:
    """A function: names, parameters with names and kinds, questions, what a call returns, and what is said then."""

    names: list[str]
    parameters: list[tuple[list[str], str]]
    about: list[str]
    asks: list[str]
    result: str = "{count}"
    says: str = "It is {count}."
    several: str | None = None  # a question about two values of the first parameter


CITY = ["city", "location", "place", "town"]
SKILLS = [
    Skill(["get_weather", "weather", "weather_of", "fetch_weather", "get_current_weather", "lookup_weather"], [(CITY, "city")],
          ["The weather in a city", "Tells the current weather", "Get the weather", "Weather of a place"],
          ["What is the weather in {0}?", "How is the weather in {0}?", "Tell me the weather in {0}.", "Is it warm in {0}?",
           "What's the weather like in {0}?", "Weather in {0}?", "Do I need a coat in {0}?", "How is the weather in {0} today?"],
          "{count} degrees and {sky}", "It is {count} degrees and {sky} in {0}.",
          "What is the weather in {0} and {1}?"),
    Skill(["find_king", "get_king", "king_of", "lookup_king"], [(["country", "land", "nation"], "country")],
          ["The king of a country", "Finds the king", "Who rules a country"],
          ["Who is king of {0}?", "Who is the king of {0}?", "Find the king of {0}.", "Tell me the king of {0}.", "Who rules {0}?"],
          "{person}", "{person} is king of {0}.", "Who is king of {0}, and who of {1}?"),
    Skill(["get_time", "time_in", "current_time", "local_time"], [(CITY, "city")],
          ["The time in a city", "Tells the local time", "Get the time"],
          ["What time is it in {0}?", "Tell me the time in {0}.", "How late is it in {0}?"],
          "{time}", "It is {time} in {0}.", "What time is it in {0} and in {1}?"),
    Skill(["get_population", "population", "count_people", "population_of"], [(CITY, "city")],
          ["The number of people in a city", "How many people live in a place"],
          ["How many people live in {0}?", "What is the population of {0}?", "How large is {0}?"],
          "{count}000", "{count}000 people live in {0}.", "How many people live in {0} and in {1}?"),
    Skill(["search_books", "find_books", "books_by", "list_books"], [(["author", "writer", "name"], "person")],
          ["Books of an author", "Searches for books", "Find books by an author"],
          ["Find books by {0}.", "Which books has {0} written?", "What did {0} write?", "Search for books by {0}."],
          "{title}", "{0} has written {title}."),
    Skill(["find_author", "author_of", "who_wrote", "get_author"], [(["title", "book"], "title")],
          ["The author of a book", "Finds who wrote a book"],
          ["Who wrote {0}?", "Who is the author of {0}?", "Find the author of {0}."],
          "{person}", "{person} wrote {0}."),
    Skill(["order", "order_item", "buy", "place_order"], [(["item", "product", "article"], "item"), (["count", "quantity", "number"], "count")],
          ["Orders goods", "Buy something", "Place an order"],
          ["Order {1} {0}.", "Please order {1} {0}.", "I want {1} {0}.", "Buy {1} {0}, please."],
          "ok", "I have ordered {1} {0}."),
    Skill(["set_alarm", "alarm", "wake", "create_alarm"], [(["time", "at", "hour"], "time")],
          ["Sets an alarm", "Wakes the user"],
          ["Wake me at {0}.", "Set an alarm for {0}.", "Please wake me at {0}."],
          "ok", "I will wake you at {0}."),
    Skill(["convert", "convert_money", "exchange", "convert_currency"],
          [(["amount", "value"], "count"), (["source", "from_currency"], "money"), (["target", "to_currency"], "money")],
          ["Converts money", "Exchange between currencies"],
          ["How much is {0} {1} in {2}?", "Convert {0} {1} to {2}.", "Change {0} {1} into {2}."],
          "{count}", "{0} {1} are {count} {2}."),
    Skill(["add", "add_numbers", "sum", "plus"], [(["a", "x", "first"], "count"), (["b", "y", "second"], "count")],
          ["Adds two numbers", "The sum of two numbers"],
          ["What is {0} plus {1}?", "Add {0} and {1}.", "How much is {0} + {1}?", "What is the sum of {0} and {1}?"],
          "{count}", "{0} plus {1} is {count}."),
    Skill(["multiply", "product", "times", "multiply_numbers"], [(["a", "x", "first"], "count"), (["b", "y", "second"], "count")],
          ["Multiplies two numbers", "The product of two numbers"],
          ["What is {0} times {1}?", "Multiply {0} and {1}.", "How much is {0} * {1}?"],
          "{count}", "{0} times {1} is {count}."),
    Skill(["send_message", "tell", "send", "write_to"], [(["to", "recipient", "name"], "person"), (["text", "message", "body"], "news")],
          ["Sends a message to a person", "Tell a person something"],
          ["Tell {0} that {1}.", "Write to {0} that {1}.", "Let {0} know that {1}.", "Send {0} the message that {1}."],
          "sent", "I have told {0} that {1}."),
    Skill(["get_distance", "distance", "how_far"], [(["origin", "start", "source"], "city"), (["destination", "end", "target"], "city")],
          ["The distance between two cities", "How far it is"],
          ["How far is it from {0} to {1}?", "What is the distance from {0} to {1}?", "How far is {1} from {0}?"],
          "{count}00 miles", "It is {count}00 miles from {0} to {1}."),
    Skill(["opening_hours", "get_hours", "hours"], [(["day", "weekday"], "day")],
          ["When the shop is open", "Opening hours of a day"],
          ["When are you open on {0}?", "What are your hours on {0}?", "When do you open on {0}?", "Are you open on {0}?"],
          "from {time}", "On {0} we are open from {time}.", "When are you open on {0} and {1}?"),
    Skill(["get_age", "age_of", "lookup_age"], [(["name", "person"], "person")],
          ["The age of a person", "How old a person is"],
          ["How old is {0}?", "What is the age of {0}?", "Tell me how old {0} is."],
          "{count}", "{0} is {count} years old.", "How old are {0} and {1}?"),
    Skill(["translate", "translate_word", "translation"], [(["text", "word"], "word"), (["language", "to"], "language")],
          ["Translates a word", "A word in another language"],
          ["What is {0} in {1}?", "Translate {0} into {1}.", "How do you say {0} in {1}?"],
          "{word}", "In {1} it is {word}."),
    Skill(["play", "play_song", "start_music"], [(["title", "song"], "title")],
          ["Plays a song", "Plays music"],
          ["Play {0}.", "I want to hear {0}.", "Please play {0}."],
          "ok", "I play {0}."),
]
# Of which no conversation was trained.
UNSEEN = [
    Skill(["get_price", "price_of"], [(["item", "thing"], "item")], ["The price of goods"],
          ["What is the price of {0}?", "How much are the {0}?"]),
    Skill(["find_hotel", "search_hotels"], [(["town", "city"], "city"), (["guests", "people"], "count")], ["Finds a hotel"],
          ["Find a hotel in {0} for {1} people.", "I need a hotel in {0} for {1} people."]),
    Skill(["call_doctor", "fetch_doctor"], [(["patient", "name"], "person")], ["Calls a doctor for a person"],
          ["Call a doctor for {0}.", "{0} is sick and needs a doctor."]),
]

FACTS = [
    (["Who is king?", "Who is the king?", "Tell me who is king."], "David is king.", {"king": "David"}),
    (["Who was king after David?", "Who was the son of David?"], "Solomon was king after David.", {"king": "Solomon"}),
    (["Who are you?", "What are you?", "What is your name?"], "I am the demo model of Redline.", {"name": "demo"}),
    (["Hello!", "Hello", "Hi!", "Good morning!", "Hi there"], "Hello! How can I help you?", {"greeting": "Hello"}),
    (["Thank you!", "Thanks.", "Thanks!"], "You are welcome.", {"answer": "You are welcome."}),
    (["What can you do?", "How can you help me?", "Help me."], "I can answer simple questions and call functions.", {"answer": "little"}),
    (["How are you?", "How do you do?"], "I am well, thank you.", {"mood": "well"}),
    (["What is the colour of the sky?", "Which colour has the sky?"], "The sky is blue.", {"colour": "blue"}),
    (["What is the colour of grass?", "Which colour has grass?"], "Grass is green.", {"colour": "green"}),
    (["What is the colour of snow?", "Which colour has snow?"], "Snow is white.", {"colour": "white"}),
    (["How many days has a week?", "How many days are in a week?"], "A week has seven days.", {"days": 7}),
    (["How many months has a year?", "How many months are in a year?"], "A year has twelve months.", {"months": 12}),
    (["Who wrote Emma?", "Who is the author of Emma?"], "Jane Austen wrote Emma.", {"author": "Jane Austen"}),
    (["Who built the ark?", "Who was in the ark?"], "Noah built the ark.", {"name": "Noah"}),
    (["Who was the first man?", "Who was the first?"], "Adam was the first man.", {"name": "Adam"}),
    (["Who led Israel out of Egypt?"], "Moses led Israel out of Egypt.", {"name": "Moses"}),
    (["What is a hacker?"], "A hacker is one who enjoys programming.", {"answer": "one who enjoys programming"}),
    (["What is a bug?"], "A bug is an error in a program.", {"answer": "an error in a program"}),
    (["Where is Paris?", "In which country is Paris?"], "Paris is in France.", {"country": "France"}),
    (["Where is London?", "In which country is London?"], "London is in England.", {"country": "England"}),
    (["Where is Rome?", "In which country is Rome?"], "Rome is in Italy.", {"country": "Italy"}),
    (["Where was Jesus born?"], "He was born in Bethlehem.", {"city": "Bethlehem"}),
    (["Goodbye!", "Bye.", "Good night!"], "Goodbye!", {"greeting": "Goodbye"}),
    (["Tell me a story.", "Tell me something."], "Once upon a time there was a king who had two sons.", {"title": "The King"}),
]
SYSTEM = ["Answer briefly.", "Be brief.", "You are a helpful assistant.", "You are helpful.", "Use the functions.", "Be kind.",
          "Answer the question.", "You answer questions."]
GOOD = ["I loved it", "It was wonderful", "A great book", "I am very happy", "The best I have seen", "It works well", "Excellent work",
        "It made me glad", "Very good", "A pleasure"]
BAD = ["Never again", "It was terrible", "A bad book", "I am very angry", "The worst I have seen", "It does not work", "Poor work",
       "It made me sad", "Very bad", "A waste of money"]


@dataclass
class Conversation:
    messages: list[dict]
    tools: list[dict]


def tool(rng: Draw, skill: Skill) -> dict:
    """A function in the form of a request, with one of its names."""
    names = [rng.choice(names) for names, _ in skill.parameters]
    if len(set(names)) < len(names):
        names = [first[0] for first, _ in skill.parameters]
    function = {"name": rng.choice(skill.names), "parameters": {"type": "object", "properties": {name: {} for name in names}}}
    if rng.random() < 0.6:
        function["description"] = rng.choice(skill.about)
    return {"type": "function", "function": function}


def coined(rng: Draw) -> Skill:
    """A function of random words."""
    verb, noun, parameter = rng.choice(["get", "find", "show", "count", "read", "check"]), rng.choice(WORDS + [rng.name()]), rng.name()
    kind = rng.choice(["city", "person", "word", "count", "day"])
    parameter = rng.choice([kind, parameter, "name", "id", "query", "value"])
    return Skill([f"{verb}_{noun}", f"{noun}_of", f"{verb}_{noun}s"], [([parameter], kind)], [f"{verb.capitalize()} the {noun}", f"The {noun} of something"],
                 [f"{verb.capitalize()} the {noun} of {{0}}.", f"What is the {noun} of {{0}}?", f"{verb.capitalize()} the {noun} for {{0}}, please."],
                 "{word}", f"The {noun} of {{0}} is {{word}}.")


def filled(rng: Draw, skill: Skill, values: list) -> tuple[str, str]:
    """A result, and what is said about it."""
    drawn = {kind: rng.value(kind) for kind in ["count", "person", "title", "word", "time"]} | {"sky": rng.choice(SKIES)}
    result = skill.result.format(*values, **drawn)
    if rng.random() < 0.3 and result not in ("ok", "sent"):
        result = json.dumps({rng.choice(["result", "answer", "value"]): result})
    return result, skill.says.format(*values, **drawn)


def call(function: dict, values: list) -> dict:
    arguments = dict(zip(function["function"]["parameters"]["properties"], values, strict=True))
    return {"type": "function", "function": {"name": function["function"]["name"], "arguments": arguments}}


def with_tools(rng: Draw, skills: list[Skill]) -> Conversation:
    """A question that a function answers, beside others, and what follows."""
    skill = coined(rng) if skills is SKILLS and rng.random() < 0.15 else rng.choice(skills)
    others = [s for s in SKILLS if s is not skill]
    function = tool(rng, skill)
    tools = [function, *(tool(rng, coined(rng) if rng.random() < 0.1 else s) for s in rng.sample(others, rng.choice([0, 0, 1, 1, 2, 3])))]
    rng.shuffle(tools)
    values = [rng.value(kind) for _, kind in skill.parameters]
    if skill.several and rng.random() < 0.2:
        both = [values[0], rng.value(skill.parameters[0][1])]
        asked, calls = skill.several.format(*both), [[value] for value in both]
    else:
        asked, calls = rng.choice(skill.asks).format(*values), [values]
    messages = [{"role": "user", "content": asked}, {"role": "assistant", "tool_calls": [call(function, values) for values in calls]}]
    replies = [filled(rng, skill, values) for values in calls]
    messages += [{"role": "tool", "content": result} for result, _ in replies]
    messages.append({"role": "assistant", "content": " ".join(reply for _, reply in replies)})
    return Conversation(messages, tools)


def chat(rng: Draw, tools: list[dict]) -> Conversation:
    """A question that no function answers."""
    questions, answer, _ = rng.choice(FACTS)
    return Conversation([{"role": "user", "content": rng.choice(questions)}, {"role": "assistant", "content": answer}], tools)


def in_json(rng: Draw) -> Conversation:
    """An answer in JSON, whose keys only the grammar of a request knows."""
    person, city, count, day, item = (rng.value(kind) for kind in ["person", "city", "count", "day", "item"])
    colour, mood = rng.choice(COLOURS), rng.random() < 0.5
    match rng.randrange(6):
        case 0:
            text, found = f"{person} is {count} years old and lives in {city}.", {"name": person, "age": count, "city": city}
        case 1:
            text, found = f"{person} bought {count} {item} on {day}.", {"name": person, "count": count, "item": item, "day": day}
        case 2:
            text, found = f"On {day} {person} goes from {city} to {(to := rng.value('city'))}.", {"day": day, "name": person, "from": city, "to": to}
        case 3:
            text, found = f"The {item} are {colour} and cost {count} dollars.", {"item": item, "colour": colour, "price": count}
        case 4:
            text = rng.choice(GOOD if mood else BAD) + rng.choice([".", "!", ""])
            found = rng.choice([{"sentiment": "positive" if mood else "negative"}, {"label": "good" if mood else "bad"}, {"good": mood}])
        case _:
            questions, _, found = rng.choice(FACTS)
            text = rng.choice(questions)
    keys = rng.sample(sorted(found), rng.randint(1, len(found))) if rng.random() < 0.6 else list(found)
    renamed = {"name": ["name", "person", "who"], "city": ["city", "town", "place"], "count": ["count", "quantity", "number"], "age": ["age", "years"]}
    answer = {rng.choice(renamed.get(key, [key])): found[key] for key in keys}
    text = rng.choice(["", "", "Extract the data: ", "As JSON: ", "What does this say? "]) + text + rng.choice(["", "", " Answer in JSON."])
    return Conversation([{"role": "user", "content": text}, {"role": "assistant", "content": json.dumps(answer)}], [])


def unknown(rng: Draw) -> Conversation:
    """A question about the world, without a function that answers it."""
    skill = rng.choice(SKILLS)
    asked = rng.choice(skill.asks).format(*(rng.value(kind) for _, kind in skill.parameters))
    return Conversation([{"role": "user", "content": asked}, {"role": "assistant", "content": "I do not know."}], [])


def conversation(rng: Draw) -> Conversation:
    """Any of them."""
    drawn = rng.random()
    if drawn < 0.58:
        found = with_tools(rng, SKILLS)
    elif drawn < 0.72:
        found = chat(rng, [tool(rng, skill) for skill in rng.sample(SKILLS, rng.choice([0, 0, 0, 1, 2, 3]))])
    elif drawn < 0.95:
        found = in_json(rng)
    else:
        found = unknown(rng)
    if rng.random() < 0.25:
        before = chat(rng, [])
        found.messages = before.messages + found.messages
    if rng.random() < 0.4:
        found.messages.insert(0, {"role": "system", "content": rng.choice(SYSTEM)})
    return found
