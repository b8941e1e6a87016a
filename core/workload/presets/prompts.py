"""The words that presets ask with: Shakespeare's, as the built-in models were brought up on him. How many tokens they are is what
several presets are about, and `tests/core/test_presets.py` counts them.
"""

from __future__ import annotations

SPEECHES = (
    "ROMEO:\nBut soft, what light through yonder window breaks?",
    "KING RICHARD:\nNow is the winter",
    "JULIET:\nO Romeo,",
    "HAMLET:\nTo be, or not to be: that is the question",
    "First Citizen:\nBefore we proceed any further, hear me speak.",
    "LADY ANNE:\nWhy",
    "All:\nSpeak, speak.",
    "DUKE OF YORK:\nMy lord, I will not",
    "NURSE:\nMadam, your mother craves a word with you.",
    "FRIAR LAURENCE:\nThese violent delights have violent ends",
    "Second Murderer:\nWhat shall we do?",
    "QUEEN MARGARET:\nAnd thou",
)

SCENE = (
    "ACT I. Scene: a street in Verona. Enter the Prince with his train, and the people of both houses. "
    "PRINCE:\nRebellious subjects, enemies to peace, profaners of this neighbour-stained steel, will they not hear? "
)

VERSES = (  # six short requests, on which the lessons show one policy after the other
    ("To be, or not to be", 4),
    ("O Romeo, Romeo! wherefore art thou", 12),
    ("Now is the winter", 7),
    ("But soft, what light through yonder window breaks?", 6),
    ("Speak, speak.", 9),
    ("Good night, good night!", 5),
)

# In tokens of the model that reads subwords: seven of 4, three of 8, eight of 48, one of 100, one of 200.

FOUR = (
    "Is it so?",
    "Who calls?",
    "What say you?",
    "Take up the sword",
    "I will not go",
    "Peace, fool",
    "Let me see it",
)

EIGHT = ("We few, we happy few", "What is the matter, my lord?", "Why, what should be the fear?")

FORTY_EIGHT = (
    "To be, or not to be: that is the question: Whether 'tis nobler in the mind to suffer The slings and arrows of outrageous "
    "fortune, Or to take arms",
    "The quality of mercy is not strain'd, It droppeth as the gentle rain from heaven Upon the place beneath: it is twice blest; "
    "It blesseth him",
    "Friends, Romans, countrymen, lend me your ears; I come to bury Caesar, not to praise him. The evil that men do lives after "
    "them; The good",
    "Once more unto the breach, dear friends, once more; Or close the wall up with our English dead. In peace there's nothing so "
    "becomes a man As modest stillness",
    "Now is the winter of our discontent Made glorious summer by this sun of York; And all the clouds that lour'd upon our house "
    "In the deep bosom of the ocean",
    "'Tis but thy name that is my enemy; Thou art thyself, though not a Montague. What's Montague? it is nor hand, nor foot, Nor "
    "arm, nor face, nor any other part Belonging to a",
    "In fair Verona, where we lay our scene, From ancient grudge break to new mutiny, Where civil blood makes civil hands "
    "unclean. From",
    "How many thousand of my poorest subjects Are at this hour asleep! O sleep, O gentle sleep, Nature's soft nurse, how have I "
    "frighted thee, That thou no",
)

HUNDRED = (
    "To-morrow, and to-morrow, and to-morrow, Creeps in this petty pace from day to day To the last syllable of recorded time, And "
    "all our yesterdays have lighted fools The way to dusty death. Out, out, brief candle! Life's but a walking shadow, a poor "
    "player That struts and frets"
)

TWO_HUNDRED = (
    "All the world's a stage, And all the men and women merely players: They have their exits and their entrances; And one man in "
    "his time plays many parts, His acts being seven ages. At first the infant, Mewling and puking in the nurse's arms. And then "
    "the whining school-boy, with his satchel And shining morning face, creeping like snail Unwillingly to school. And then the "
    "lover, Sighing like furnace, with a woeful ballad Made to his mistress' eyebrow. And then a soldier, Full of strange oaths and "
    "bearded like the pard, Jealous in honour, sudden and quick in quarrel, Seeking the"
)
