//! Prompts of six kinds, four of each.

/// Kinds and their prompts.
pub(crate) const PROMPTS: [(&str, [&str; 4]); 6] = [
    (
        "code",
        [
            "Write a Rust function that merges two sorted vectors into one sorted vector.",
            "Write a Python class for a bank account with deposit, withdraw and a balance check.",
            "Write a SQL query that lists the five customers who spent most in 2024.",
            "Write a C function that reverses a singly linked list in place, with comments.",
        ],
    ),
    (
        "edit",
        [
            "Rename the variable x to total and print the whole program again:\n\
             def f(items):\n    x = 0\n    for item in items:\n        x += item.price\n    return x",
            "Add type hints to this function and print it again:\n\
             def mean(values):\n    if not values:\n        return None\n    return sum(values) / len(values)",
            "Turn this JSON into YAML: {\"name\": \"lamp\", \"tags\": [\"desk\", \"led\"], \
             \"size\": {\"w\": 12, \"h\": 40}}",
            "Correct the spelling and repeat the text: Yesterdey we whent to the libary and \
             borowed too books abaut astronomie.",
        ],
    ),
    (
        "reasoning",
        [
            "A train leaves at 9:40 and travels 210 km at 84 km/h. When does it arrive? Explain \
             each step.",
            "Tom has three times as many apples as Ann; together they have 48. How many has each?",
            "Is 221 a prime number? Show how you know.",
            "What is the sum of the first 50 odd numbers, and why?",
        ],
    ),
    (
        "prose",
        [
            "Explain to a child why the sky is blue.",
            "Describe a small harbour town on a rainy morning.",
            "Write a short letter that thanks a neighbour for watering the plants.",
            "Tell a story about a clock that runs backwards.",
        ],
    ),
    (
        "facts",
        [
            "What is the difference between TCP and UDP?",
            "How does a refrigerator work?",
            "What were the main causes of the French Revolution?",
            "Name the planets of the solar system with one fact about each.",
        ],
    ),
    (
        "translation",
        [
            "Translate to German: The meeting was moved to Thursday because the room is not free.",
            "Translate to French: Could you tell me where the nearest pharmacy is, please?",
            "Translate to Spanish: We saved the file twice, but the changes were still lost.",
            "Translate to Czech: The old bridge is closed for repairs until the end of the month.",
        ],
    ),
];
