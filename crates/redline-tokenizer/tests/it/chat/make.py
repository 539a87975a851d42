"""Write expected.json: what transformers makes of chat templates that use what published ones use.

    python make.py        (needs the package `transformers` with `jinja2`)

The templates are written for this test. Dates are not asked for: `strftime_now` differs by intent.
"""

import json
from pathlib import Path

from transformers.utils.chat_template_utils import render_jinja_template

HERE = Path(__file__).resolve().parent
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}

TEMPLATES = {
    "turns": """{%- for message in messages %}
    {{- '<|' + message['role'] + '|>\\n' + message.content | trim + '<|end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|assistant|>\\n' }}
{%- endif %}
""",
    "default-system": """{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}{% set rest = messages[1:] %}{% else %}{% set system = 'Help.' %}{% set rest = messages %}{% endif %}
{{ bos_token }}[SYS]{{ system }}[/SYS]
{% for message in rest %}
{% if loop.first %}first {% endif %}{{ loop.index0 }}/{{ loop.length }} {{ message.role | upper }}: {{ message.content }}{{ eos_token }}
{% endfor %}
{% if add_generation_prompt %}ANSWER:{% endif %}""",
    "alternates": """{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'].strip() + ' [/INST]' }}{% else %}{{ message['content'].split('</think>')[-1].lstrip('\\n') + eos_token }}{% endif %}{% endfor %}""",
    "state": """{%- set ns = namespace(turns=0, last='') -%}
{%- macro turn(role, text) -%}
<{{ role }}>{{ text.replace('<', '&lt;') }}</{{ role }}>
{%- endmacro -%}
{%- for message in messages -%}
{%- if message.content is string and message.content.startswith('#') -%}{%- continue -%}{%- endif -%}
{%- set ns.turns = ns.turns + 1 -%}
{%- set ns.last = message.role -%}
{{ turn(message.role, message.content) }}
{%- endfor %}
{{ ns.turns }} {{ ns.last }} {{ tools is none }} {{ documents is defined }} {{ other is defined }}
{%- if not tools %} no tools{% endif %}
""",
    "json": """{{ messages | tojson }}
{{ messages[0] | tojson(indent=2) }}
{{ messages | length }} {{ messages[-1].content[:5] }} {{ messages | map(attribute='role') | join(',') }}""",
}
CONVERSATIONS = {
    "one": [{"role": "user", "content": "  What is <b>2 & 3</b>? \"Five\", \u00fcber\n"}],
    "system": [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "#hidden"},
        {"role": "assistant", "content": "<think>so</think>\n\nYes."},
        {"role": "user", "content": "Why?"},
    ],
    "two": [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "<think>so</think>\n\nYes."},
        {"role": "user", "content": "Why? \u4f60\u597d"},
    ],
}


def rendered(template, messages, prompt):
    try:
        texts, _ = render_jinja_template(
            conversations=[messages], chat_template=template, add_generation_prompt=prompt, **TOKENS
        )
    except Exception as error:  # what a template raises, whatever its class
        return {"error": str(error)}
    return {"text": texts[0]}


def main():
    cases = [
        {"name": f"{name}, {conversation}, {prompt}", "template": template, "messages": messages, "prompt": prompt}
        | rendered(template, messages, prompt)
        for name, template in TEMPLATES.items()
        for conversation, messages in CONVERSATIONS.items()
        for prompt in (False, True)
    ]
    (HERE / "expected.json").write_text(json.dumps({"tokens": TOKENS, "cases": cases}, indent=1) + "\n", encoding="utf-8")
    print(f"{len(cases)} cases, {sum('error' in case for case in cases)} errors")


if __name__ == "__main__":
    main()
