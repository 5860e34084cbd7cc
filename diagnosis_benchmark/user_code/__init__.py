"""Programs whose settings are innocent and of whose code one line is at fault: does the report name the line?"""
