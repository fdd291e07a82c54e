"""Words that grading treats apart: prepositions, titles, modifiers, short forms of given names."""

from __future__ import annotations

from anchorscope.grades.normalise import ARTICLES, singular


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


LEADING = _set(
    "in on at from through to of by since during around about approximately circa between within for into with near"
    " under over as either both it is was are were be because his her their its each being he she they"
)
INNER = _set("in on at of to from for and with by")
TITLES = _set(
    "mr mrs ms dr sir dame lord lady saint st president king queen emperor empress prince princess pope general gen"
    " colonel col captain capt major maj lieutenant lt sergeant sgt admiral senator sen governor gov professor prof"
    " reverend rev judge justice maharaja sultan chief"
)
DROPPED = LEADING | TITLES | ARTICLES
MODIFIERS = _set(
    "new old great grand greater lesser united north south east west northern southern eastern western central upper"
    " lower big little black white red green blue first last early late saint san santa los las el la le de von van"
    " royal national international federal general american british french german english world state city county"
    " university college school church company party league football club people republic"
)
FUNCTION = INNER | _set("that this which who has have had been not also known called named or but there i you we")
SUFFIXES = _set("jr sr")
_GIVEN_NAMES = """
    edward ed eddie eddy ted teddy ned, thomas tom tommy, william bill billy will willie, robert rob bob bobby robbie,
    richard rick dick ricky richie, james jim jimmy jamie, john jack johnny, joseph joe joey, michael mike mikey mick,
    peter pete, patricia patty pat patti, elizabeth liz beth betty lizzie eliza, katherine kate kathy katie catherine,
    margaret maggie peggy meg, charles charlie chuck, daniel dan danny, david dave davey, andrew andy drew,
    anthony tony, benjamin ben benny, christopher chris, samuel sam sammy, steven steve stephen, nicholas nick,
    matthew matt, gregory greg, ronald ron ronnie, donald don donnie, kenneth ken kenny, lawrence larry, timothy tim,
    alexander alex, frederick fred freddie, jennifer jen jenny, susan sue susie, rebecca becky, deborah debbie debra,
    jeffrey jeff, vincent vince, walter walt, leonard len lenny leo, philip phil phillip, abigail abby
"""
# through singular(), as the plural rule leaves the words of both sides: thoma, jame
FULL_NAME = {singular(n): names.split()[0] for names in _GIVEN_NAMES.split(",") for n in names.split()}
PERSON = _set("who whose whom actor actress cast singer voice")
ORDINARY = _set("in on at as is it be by to us or of so do he me my we an am and the are for no go up if")
