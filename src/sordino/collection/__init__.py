"""Labels that are private before they leave the browser: a page and a service (extra ``collect``).

In the order of the data flow: a study is read and frozen (study, questions), people are invited
(answers), the page randomizes what they choose (page/randomize.js), the service stores what
arrives (service, database) and hands it on as a file (answers). Nothing here can learn: rewards,
policies and algorithms are not imported.
"""
