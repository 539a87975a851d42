"""What the scenarios judge with, without a server."""

import asyncio
import json
import math
import random
import unittest

import client
import comparison
import decisions
import overload
import report
import run
import self_test
import sigterm
import work


def answer(status=200, body=b"{}", complete=True, stream=False):
    kind = "text/event-stream" if stream else "application/json"
    return client.Answer(status=status, headers={"content-type": kind}, body=body, complete=complete)


class Reports(unittest.TestCase):
    def test_every_missed_target_fails_a_report(self):
        for add, value, passes in [
            ("at_most", 5, True), ("at_most", 5.1, False), ("at_most", math.nan, False),
            ("at_least", 5, True), ("at_least", 4.9, False), ("at_least", math.nan, False),
            ("equal", 5, True), ("equal", 6, False),
        ]:  # fmt: skip
            one = report.Report("x")
            getattr(one, add)("figure", value, 5)
            self.assertEqual(one.passed(), passes, (add, value))

    def test_a_report_without_targets_or_with_an_error_has_not_passed(self):
        one = report.Report("x")
        one.measured("figure", 1)
        self.assertFalse(one.passed())
        one.equal("other", 0, 0)
        self.assertTrue(one.passed())
        one.error = "broken"
        self.assertFalse(one.passed())

    def test_a_document_is_json_also_without_numbers(self):
        one = report.Report("x")
        one.at_most("figure", math.nan, 5)
        text = json.dumps(one.document(), allow_nan=False)
        self.assertIsNone(json.loads(text)["figures"][0]["value"])
        self.assertIn("MISSED", "\n".join(one.lines()))

    def test_percentiles(self):
        values = list(range(1, 101))
        self.assertEqual([report.percentile(values, share) for share in (0.5, 0.99, 1)], [50, 99, 100])
        self.assertEqual(report.percentile([7], 0.01), 7)
        self.assertTrue(math.isnan(report.percentile([], 0.5)))


class Answers(unittest.TestCase):
    def test_a_cut_answer_has_no_end(self):
        self.assertTrue(answer().good())
        self.assertFalse(answer(complete=False).ended())
        self.assertFalse(client.Answer().ended())

    def test_a_stream_ends_with_its_last_event(self):
        self.assertFalse(answer(body=b'data: {"choices":[]}\n\n', stream=True).ended())
        self.assertTrue(answer(body=b"data: [DONE]\n\n", stream=True).good())
        failed = answer(body=b'data: {"error":{"code":"draining"}}\n\n', stream=True)
        self.assertTrue(failed.ended())
        self.assertFalse(failed.good())

    def test_ids_and_times_are_no_difference_and_numbers_are(self):
        first = answer(body=b'{"id":"a-1","created":12,"cached_tokens":3,"p":0.25}')
        self.assertEqual(comparison.same(first), comparison.same(answer(body=b'{"id":"b-77","created":900,"cached_tokens":0,"p":0.25}')))
        self.assertNotEqual(comparison.same(first), comparison.same(answer(body=b'{"id":"a-1","created":12,"cached_tokens":3,"p":0.250}')))
        self.assertNotEqual(comparison.same(first), comparison.same(answer(status=500, body=first.body)))

    def test_answers_that_differ_are_counted_and_the_first_is_shown(self):
        one = report.Report("x")
        expected = comparison.references(one, [answer(body=b"abc"), answer(body=b"abd"), answer(body=b"x")])
        comparison.compare(one, "equal", expected, [answer(body=b"abc"), answer(body=b"abd"), answer(body=b"x")])
        self.assertTrue(one.passed())
        self.assertEqual(one.notes, [])
        # A difference in order is a difference.
        comparison.compare(one, "other", expected, [answer(body=b"abc"), answer(body=b"adb"), answer(status=500)])
        self.assertFalse(one.passed())
        self.assertEqual(one.figures[-1].value, 2)
        self.assertEqual(one.notes, ["other: the first is number 1; 'adb' instead of 'abd'"])

    def test_first_answers_that_failed_fail_the_report(self):
        one = report.Report("x")
        comparison.references(one, [answer(), answer(status=500)])
        self.assertFalse(one.passed())

    def test_decisions_are_compared_as_written(self):
        body = '{{"answers":[{{"probability":{}}}],"diagnostics":[{{}}]}}'
        one, other = (decisions.read(answer(body=body.format(p).encode())) for p in ("0.1", "0.10"))
        self.assertNotEqual(one, other)
        self.assertIsNone(decisions.read(answer(status=429)))

    def test_what_happened_at_the_end_is_sorted(self):
        totals = dict.fromkeys(
            ["refused: no connection", "closed before an answer", "answers that were cut", "refused or ended with 503", "complete",
             "streams that ended with an error event", "other statuses"], 0,
        )  # fmt: skip
        refused = client.Answer(refused=True)
        error = answer(body=b'data: {"error":{}}\n\n', stream=True)
        sigterm.count(totals, [answer(), answer(complete=False), answer(status=503), client.Answer(), refused, error, answer(status=500)])
        self.assertEqual(set(totals.values()), {1})


class Connections(unittest.IsolatedAsyncioTestCase):
    async def test_one_that_the_server_closed_while_it_was_idle_is_opened_again(self):
        async def once(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            writer.close()

        async with await asyncio.start_server(once, "127.0.0.1", 0) as server:
            connection = client.Connection(server.sockets[0].getsockname()[1])
            for _ in range(3):
                self.assertTrue((await connection.send(b"GET / HTTP/1.1\r\n\r\n")).good())
                async with asyncio.timeout(10):
                    while not connection.reader.at_eof():
                        await asyncio.sleep(0.01)
            connection.close()


class Overload(unittest.TestCase):
    def judged(self, offered, taken=0.01):
        """The figures of an overload of one second of a server with a peak of 10 answers per second."""
        refusal = client.Answer(status=429, headers={"retry-after": "1"}, complete=True)
        arrivals = overload.Arrivals(None, None)
        arrivals.begin, arrivals.end, arrivals.memory = 5.0, 6.0, [10, 10]
        arrivals.answers = [(0.5, 5.9, answer())] * 10 + [(taken, 5.9, refusal)] * (offered - 10)
        one = report.Report("x")
        overload.judge(one, arrivals, 10)
        return [figure.name for figure in one.figures if not figure.met()]

    def test_less_than_ten_times_the_peak_is_no_overload(self):
        self.assertEqual(self.judged(90), [])
        self.assertEqual(self.judged(89), ["offered / peak"])

    def test_the_time_of_a_refusal_counts_from_when_the_request_was_due(self):
        self.assertEqual(self.judged(100, taken=0.051), [f"time of a refusal, {name}" for name in ("p50", "p99", "p99.9", "max")])


class Requests(unittest.TestCase):
    def test_requests_are_a_function_of_the_seed(self):
        self.assertEqual(work.mixed(40, 3), work.mixed(40, 3))
        self.assertNotEqual(work.mixed(40, 3), work.mixed(40, 4))
        self.assertEqual(work.long_generation(random.Random(1)), work.long_generation(random.Random(1)))

    def test_every_scenario_has_a_fault_that_it_must_find(self):
        self.assertEqual(list(self_test.FINDS), list(run.SCENARIOS))


if __name__ == "__main__":
    unittest.main()
