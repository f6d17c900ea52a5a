"""Runs the unittest suite and writes a JUnit report to the path given, since unittest cannot."""

import sys
import unittest
from xml.etree import ElementTree


class Noting(unittest.TextTestResult):
    """Remembers how every test went."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.outcomes = {}

    def startTest(self, test):
        super().startTest(test)
        self.outcomes[test.id()] = ("passed", "")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.outcomes[test.id()] = ("failure", self.failures[-1][1])

    def addError(self, test, err):
        super().addError(test, err)
        self.outcomes[test.id()] = ("error", self.errors[-1][1])

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.outcomes[test.id()] = ("skipped", reason)


tests = unittest.defaultTestLoader.discover(".", "test_*.py")
result = unittest.TextTestRunner(resultclass=Noting, verbosity=0).run(tests)
suite = ElementTree.Element("testsuite", name="unittest", tests=str(len(result.outcomes)))
for name, (outcome, words) in result.outcomes.items():
    place, _, test = name.rpartition(".")
    case = ElementTree.SubElement(suite, "testcase", classname=place, name=test)
    if outcome != "passed":
        ElementTree.SubElement(case, outcome).text = words
ElementTree.ElementTree(suite).write(sys.argv[1], encoding="utf-8", xml_declaration=True)
sys.exit(not result.wasSuccessful())
